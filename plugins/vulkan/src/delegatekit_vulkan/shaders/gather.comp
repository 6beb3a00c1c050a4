#version 450
//! Elements at indices of their own along one axis.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    // Elements along the axis that is indexed, and from one to the next.
    uint size;
    uint axis_stride;
    // Of the result; strides of the source, 0 along the axis that is indexed.
    uint sizes[LIMIT_AXES];
    uint strides[LIMIT_AXES];
    // Its number, from 1.
    uint call;
};
// How many of the axes, counted from the last, are used.
layout(constant_id = 1) const uint RANK = LIMIT_AXES;

layout(std430, binding = 0) readonly buffer From { uint source[]; };
layout(std430, binding = 1) readonly buffer Index { int index_of[]; };
layout(std430, binding = 2) writeonly buffer To { uint target[]; };
// The last call that found an index out of range.
layout(std430, binding = 3) buffer Fault { uint fault; };

void main() {
    uint place = item();
    if (place >= count) {
        return;
    }
    uint rest = place;
    uint from = 0u;
    for (uint axis = LIMIT_AXES; axis > LIMIT_AXES - RANK; axis--) {
        uint length = sizes[axis - 1u];
        from += rest % length * strides[axis - 1u];
        rest /= length;
    }
    int found = index_of[place];
    if (found < 0 || found >= int(size)) {
        atomicMax(fault, call);
    }
    // An index out of range must not read outside.
    target[place] = source[from + uint(clamp(found, 0, int(size) - 1)) * axis_stride];
}
