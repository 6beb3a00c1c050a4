#version 450
//! The last step of softmax where largest elements and sums of rows are known.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "exponential.glsl"

layout(push_constant) uniform Push {
    uint count;
    // Elements of a row, and from one to the next.
    uint size;
    uint inner;
};
layout(constant_id = 1) const bool LOGARITHM = false;

layout(std430, binding = 0) readonly buffer From { float source[]; };
layout(std430, binding = 1) readonly buffer Largest { float largest[]; };
layout(std430, binding = 2) readonly buffer Sums { float sums[]; };
layout(std430, binding = 3) writeonly buffer To { float target[]; };

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint row = index / inner / size * inner + index % inner;
    float below = source[index] - largest[row];
    target[index] = rounded(LOGARITHM ? below - logarithm(sums[row]) : exponential(below) / sums[row]);
}
