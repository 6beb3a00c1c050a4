#version 450
//! Elements from one place to another: permutations, slices, repetitions, concatenations, flips.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    uint from_offset;
    uint to_offset;
    uint sizes[LIMIT_AXES];
    int from_strides[LIMIT_AXES];
    int to_strides[LIMIT_AXES];
    int step;
};
// How many of the axes, counted from the last, are used.
layout(constant_id = 1) const uint RANK = LIMIT_AXES;
// Whether an invocation moves to four places that lie together; then the target's offset and strides count these.
layout(constant_id = 2) const bool WIDE = false;
// Whether the four lie together in the source, too, which then is counted likewise; else there is a `step` between them.
layout(constant_id = 3) const bool TOGETHER = false;

layout(std430, binding = 0) readonly buffer From { uint source[]; };
layout(std430, binding = 1) buffer To { uint target[]; };
layout(std430, binding = 0) readonly buffer From4 { uvec4 source4[]; };
layout(std430, binding = 1) buffer To4 { uvec4 target4[]; };

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint rest = index;
    int from = int(from_offset);
    int to = int(to_offset);
    for (uint axis = LIMIT_AXES; axis > LIMIT_AXES - RANK; axis--) {
        uint size = sizes[axis - 1u];
        uint place = rest % size;
        rest /= size;
        from += int(place) * from_strides[axis - 1u];
        to += int(place) * to_strides[axis - 1u];
    }
    if (WIDE) {
        if (TOGETHER) {
            target4[to] = source4[from];
        } else {
            uint first = source[from];
            uint second = source[from + step];
            uint third = source[from + 2 * step];
            target4[to] = uvec4(first, second, third, source[from + 3 * step]);
        }
    } else {
        target[to] = source[from];
    }
}
