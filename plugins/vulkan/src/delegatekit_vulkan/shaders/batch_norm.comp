#version 450
//! Numbers of each channel, normalized by a mean and a variance that are given.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    uint channels;
    uint pixels; // of a plane
    float epsilon;
};
layout(constant_id = 1) const bool WEIGHT = true;
layout(constant_id = 2) const bool BIAS = true;

layout(std430, binding = 0) readonly buffer Input { float source[]; };
layout(std430, binding = 1) readonly buffer Weight { float weight[]; };
layout(std430, binding = 2) readonly buffer Bias { float bias[]; };
layout(std430, binding = 3) readonly buffer Mean { float mean[]; };
layout(std430, binding = 4) readonly buffer Variance { float variance[]; };
layout(std430, binding = 5) writeonly buffer Output { float target[]; };

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint channel = index / pixels % channels;
    float factor = (WEIGHT ? weight[channel] : 1.0) / sqrt(variance[channel] + epsilon);
    float shift = BIAS ? bias[channel] : 0.0;
    target[index] = rounded((source[index] - mean[channel]) * factor + shift);
}
