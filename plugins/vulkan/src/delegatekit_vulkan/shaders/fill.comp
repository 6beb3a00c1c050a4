#version 450
//! One word everywhere, or numbers with equal steps between them.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    uint first;
    uint step_bits;
};
// 0: the word `first`; 1: float32 steps; 2: int32 steps.
layout(constant_id = 1) const uint KIND = 0u;

layout(std430, binding = 0) writeonly buffer To { uint target[]; };

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    if (KIND == 0u) {
        target[index] = first;
    } else if (KIND == 1u) {
        target[index] = floatBitsToUint(rounded(uintBitsToFloat(first) + float(index) * uintBitsToFloat(step_bits)));
    } else {
        target[index] = first + index * step_bits;
    }
}
