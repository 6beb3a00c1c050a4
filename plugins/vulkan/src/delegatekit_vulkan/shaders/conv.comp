#version 450
//! Convolutions of any kind, 8 channels of 8 pixels in an invocation; transposed ones gather, too.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    uint pixel_blocks;
    uint groups;
    uint in_channels; // of a group
    uint out_channels; // of a group
    uint channel_blocks; // of a group
    // All pairs are (height, width).
    ivec2 in_size;
    ivec2 out_size;
    ivec2 kernel;
    ivec2 step;
    ivec2 padding;
    ivec2 dilation;
    float low;
    float high;
};
layout(constant_id = 1) const bool CLAMP = false;
layout(constant_id = 2) const bool BIAS = false;
layout(constant_id = 3) const bool TRANSPOSED = false;

layout(std430, binding = 0) readonly buffer Input { float source[]; };
layout(std430, binding = 1) readonly buffer Weight { vec4 weight[]; };
layout(std430, binding = 2) readonly buffer Bias { vec4 bias[]; };
layout(std430, binding = 3) writeonly buffer Output { float target[]; };

#include "convolution.glsl"

// Where the pixel with this number is in the result. The numbers of a transposed convolution go over the pixels that
// the same elements of the kernel reach, so that most blocks can leave out the other elements.
ivec2 place(int number) {
    if (!TRANSPOSED) {
        return ivec2(number / out_size.y, number % out_size.y);
    }
    ivec2 phases = min(step, out_size);
    ivec2 sizes = (out_size + step - 1) / step;
    int phase = number / (sizes.x * sizes.y);
    int rest = number % (sizes.x * sizes.y);
    return ivec2(rest / sizes.y, rest % sizes.y) * step + ivec2(phase / phases.y, phase % phases.y);
}

bool inside(ivec2 at) {
    return uint(at.x) < uint(in_size.x) && uint(at.y) < uint(in_size.y);
}

#define PLACE(N) ivec2 place##N = place(number + N);
#define FROM(N) ivec2 from##N = TRANSPOSED ? place##N + padding : place##N * step - padding;
#define REACH(N) \
    ivec2 at##N = TRANSPOSED ? from##N - offset : from##N + offset; \
    if (TRANSPOSED) { \
        bool exact##N = at##N.x >= 0 && at##N.y >= 0 && at##N == at##N / step * step; \
        at##N = exact##N ? at##N / step : ivec2(-1); \
    } \
    bool in##N = inside(at##N); \
    uint index##N = start + (in##N ? uint(at##N.x * in_size.y + at##N.y) : 0u); \
    any = any || in##N;
#define TERM(N) \
    float x##N = source[index##N]; \
    x##N = in##N ? x##N : 0.0; \
    index##N += plane; \
    a##N += first * x##N; \
    b##N += second * x##N;
#define ONE(N, VALUE, CHANNEL) if (channel + CHANNEL < out_channels) { target[to##N + CHANNEL * area] = VALUE; }
// A block has one channel at least.
#define STORE(N) \
    if (place##N.x < out_size.x && place##N.y < out_size.y) { \
        uint to##N = base + uint(place##N.x * out_size.y + place##N.y); \
        a##N = stored(a##N, low, high); \
        b##N = stored(b##N, low, high); \
        target[to##N] = a##N.x; \
        ONE(N, a##N.y, 1u) ONE(N, a##N.z, 2u) ONE(N, a##N.w, 3u) \
        ONE(N, b##N.x, 4u) ONE(N, b##N.y, 5u) ONE(N, b##N.z, 6u) ONE(N, b##N.w, 7u) \
    }

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    int number = int(index % pixel_blocks) * 8;
    uint block = index / pixel_blocks % (groups * channel_blocks);
    uint image = index / pixel_blocks / (groups * channel_blocks);
    uint group = block / channel_blocks;
    uint channel = block % channel_blocks * 8u;
    uint plane = uint(in_size.x * in_size.y);
    uint area = uint(out_size.x * out_size.y);
    uint start = (image * groups + group) * in_channels * plane;
    uint base = ((image * groups + group) * out_channels + channel) * area;
    uint taken = block * uint(kernel.x * kernel.y) * in_channels * 2u;

    vec4 first = BIAS ? bias[block * 2u] : vec4(0.0);
    vec4 second = BIAS ? bias[block * 2u + 1u] : vec4(0.0);
    ALL(DECLARE)
    ALL(PLACE)
    ALL(FROM)
    for (int row = 0; row < kernel.x; row++) {
        for (int column = 0; column < kernel.y; column++) {
            ivec2 offset = ivec2(row, column) * dilation;
            bool any = false;
            ALL(REACH)
            uint end = taken + in_channels * 2u;
            if (any) {
                for (uint at = taken; at < end; at += 2u) {
                    first = weight[at];
                    second = weight[at + 1u];
                    ALL(TERM)
                }
            }
            taken = end;
        }
    }
    ALL(STORE)
}
