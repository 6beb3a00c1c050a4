#version 450
//! Elements from one place to another: permutations, slices, repetitions, concatenations, flips.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    uint from_offset;
    uint to_offset;
    uint sizes[AXES];
    int from_strides[AXES];
    int to_strides[AXES];
};
// How many of the axes, counted from the last, are used.
layout(constant_id = 1) const uint RANK = AXES;

layout(std430, binding = 0) readonly buffer From { uint source[]; };
layout(std430, binding = 1) buffer To { uint target[]; };

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint rest = index;
    int from = int(from_offset);
    int to = int(to_offset);
    for (uint axis = AXES; axis > AXES - RANK; axis--) {
        uint size = sizes[axis - 1u];
        uint place = rest % size;
        rest /= size;
        from += int(place) * from_strides[axis - 1u];
        to += int(place) * to_strides[axis - 1u];
    }
    target[to] = source[from];
}
