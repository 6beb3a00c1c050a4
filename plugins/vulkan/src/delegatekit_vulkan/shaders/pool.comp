#version 450
//! Maxima, with their positions, and averages of windows: one in an invocation.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    int divisor; // of an average; 0: as many as the window has elements
    // All pairs are (height, width).
    ivec2 in_size;
    ivec2 out_size;
    ivec2 kernel;
    ivec2 step;
    ivec2 padding;
    ivec2 dilation;
};
layout(constant_id = 1) const uint KIND = 0u;

layout(std430, binding = 0) readonly buffer Input { float source[]; };
layout(std430, binding = 1) writeonly buffer Positions { int positions[]; };
layout(std430, binding = 2) writeonly buffer Output { float target[]; };

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint area = uint(out_size.x * out_size.y);
    int number = int(index % area);
    int start = int(index / area) * in_size.x * in_size.y;
    ivec2 first = ivec2(number / out_size.y, number % out_size.y) * step - padding;
    // The first element of the window that is in the image.
    ivec2 begin = first + max((dilation - 1 - first) / dilation, ivec2(0)) * dilation;
    ivec2 reach = first + kernel * dilation;
    ivec2 end = min(reach, in_size);
    if (KIND <= POOL_POSITION) {
        float most = uintBitsToFloat(0xFF800000u);
        int where = begin.x * in_size.y + begin.y;
        for (int y = begin.x; y < end.x; y += dilation.x) {
            for (int x = begin.y; x < end.y; x += dilation.y) {
                int at = y * in_size.y + x;
                float value = source[start + at];
                if (value > most || isnan(value)) {
                    most = value;
                    where = at;
                }
            }
        }
        target[index] = most;
        if (KIND == POOL_POSITION) {
            positions[index] = where;
        }
    } else {
        float sum = 0.0;
        for (int y = begin.x; y < end.x; y++) {
            for (int x = begin.y; x < end.y; x++) {
                sum += source[start + y * in_size.y + x];
            }
        }
        ivec2 taken = KIND == POOL_PADDED_AVERAGE ? min(reach, in_size + padding) - first : end - begin;
        int elements = divisor != 0 ? divisor : taken.x * taken.y;
        target[index] = begin.x < end.x && begin.y < end.y ? rounded(sum / float(elements)) : 0.0;
    }
}
