#version 450
//! The position of the largest or the least element along an axis: the first of equal ones, or the first NaN.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "exponential.glsl"

layout(push_constant) uniform Push {
    uint count;
    uint size;
    uint inner;
};
layout(constant_id = 1) const bool LEAST = false;
layout(constant_id = 2) const bool WHOLE = false;

layout(std430, binding = 0) readonly buffer From { uint source[]; };
layout(std430, binding = 1) writeonly buffer To { int target[]; };

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint start = index / inner * size * inner + index % inner;
    int place = 0;
    if (WHOLE) {
        int found = int(source[start]);
        for (uint i = 1u; i < size; i++) {
            int next = int(source[start + i * inner]);
            if (LEAST ? next < found : next > found) {
                found = next;
                place = int(i);
            }
        }
    } else {
        float found = uintBitsToFloat(source[start]);
        for (uint i = 1u; i < size; i++) {
            float next = uintBitsToFloat(source[start + i * inner]);
            if (!is_nan(found) && (is_nan(next) || (LEAST ? next < found : next > found))) {
                found = next;
                place = int(i);
            }
        }
    }
    target[index] = place;
}
