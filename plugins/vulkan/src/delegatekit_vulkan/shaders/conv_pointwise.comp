#version 450
//! Convolutions of single pixels, where their number is a multiple of 4: 8 channels of 8 pixels in an invocation.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    uint pixel_blocks;
    uint in_channels;
    uint out_channels;
    uint quads; // vectors of 4 pixels in a plane
    float low;
    float high;
};
layout(constant_id = 1) const bool CLAMP = false;
layout(constant_id = 2) const bool BIAS = false;

layout(std430, binding = 0) readonly buffer Input { vec4 source[]; };
layout(std430, binding = 1) readonly buffer Weight { vec4 weight[]; };
layout(std430, binding = 2) readonly buffer Bias { vec4 bias[]; };
layout(std430, binding = 3) writeonly buffer Output { vec4 target[]; };

#include "convolution.glsl"

#define TERM(N, VALUE) a##N += first * VALUE; b##N += second * VALUE;
#define STORE(C, SET, PART) \
    if (channel + C < out_channels) { \
        target[to + C * quads] = vec4(SET##0 .PART, SET##1 .PART, SET##2 .PART, SET##3 .PART); \
        if (more) { \
            target[to + C * quads + 1u] = vec4(SET##4 .PART, SET##5 .PART, SET##6 .PART, SET##7 .PART); \
        } \
    }
#define FINISH(N) a##N = stored(a##N, low, high); b##N = stored(b##N, low, high);

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint blocks = (out_channels + 7u) / 8u;
    uint quad = index % pixel_blocks * 2u;
    uint block = index / pixel_blocks % blocks;
    uint image = index / pixel_blocks / blocks;
    uint channel = block * 8u;
    bool more = quad + 1u < quads;
    uint next = more ? 1u : 0u;
    uint from = image * in_channels * quads + quad;
    uint to = (image * out_channels + channel) * quads + quad;

    vec4 first = BIAS ? bias[block * 2u] : vec4(0.0);
    vec4 second = BIAS ? bias[block * 2u + 1u] : vec4(0.0);
    ALL(DECLARE)
    uint end = (block + 1u) * in_channels * 2u;
    for (uint at = block * in_channels * 2u; at < end; at += 2u) {
        first = weight[at];
        second = weight[at + 1u];
        vec4 left = source[from];
        vec4 right = source[from + next];
        from += quads;
        TERM(0, left.x) TERM(1, left.y) TERM(2, left.z) TERM(3, left.w)
        TERM(4, right.x) TERM(5, right.y) TERM(6, right.z) TERM(7, right.w)
    }
    ALL(FINISH)
    STORE(0u, a, x) STORE(1u, a, y) STORE(2u, a, z) STORE(3u, a, w)
    STORE(4u, b, x) STORE(5u, b, y) STORE(6u, b, z) STORE(7u, b, w)
}
