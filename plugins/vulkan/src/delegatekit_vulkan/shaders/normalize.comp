#version 450
//! (x - mean) * scale of each row, times a weight and plus a bias of its element or channel.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    // Elements of a row.
    uint size;
    // Elements that have one weight, and weights.
    uint same;
    uint weights;
};
layout(constant_id = 1) const bool WEIGHT = false;
layout(constant_id = 2) const bool BIAS = false;
// Whether rows are whole vectors of four.
layout(constant_id = 3) const bool VECTORS = false;

layout(std430, binding = 0) readonly buffer From { float source[]; };
layout(std430, binding = 0) readonly buffer FromVectors { vec4 source_vectors[]; };
layout(std430, binding = 1) readonly buffer Means { float means[]; };
layout(std430, binding = 2) readonly buffer Scales { float scales[]; };
layout(std430, binding = 3) readonly buffer Weight { float weight[]; };
layout(std430, binding = 3) readonly buffer WeightVectors { vec4 weight_vectors[]; };
layout(std430, binding = 4) readonly buffer Bias { float bias[]; };
layout(std430, binding = 4) readonly buffer BiasVectors { vec4 bias_vectors[]; };
layout(std430, binding = 5) writeonly buffer To { float target[]; };
layout(std430, binding = 5) writeonly buffer ToVectors { vec4 target_vectors[]; };

void vectors(uint index) {
    uint row = index / (size / 4u);
    vec4 x = (source_vectors[index] - means[row]) * scales[row];
    // One weight for four elements, or four weights.
    uint at = same > 1u ? index / (same / 4u) % weights : index % (weights / 4u);
    if (WEIGHT) {
        x *= same > 1u ? vec4(weight[at]) : weight_vectors[at];
    }
    if (BIAS) {
        x += same > 1u ? vec4(bias[at]) : bias_vectors[at];
    }
    target_vectors[index] = vec4(rounded(x.x), rounded(x.y), rounded(x.z), rounded(x.w));
}

void main() {
    uint index = item();
    if (VECTORS) {
        if (index < count / 4u) {
            vectors(index);
        }
        return;
    }
    if (index >= count) {
        return;
    }
    uint row = index / size;
    float x = (source[index] - means[row]) * scales[row];
    uint at = index / same % weights;
    if (WEIGHT) {
        x *= weight[at];
    }
    if (BIAS) {
        x += bias[at];
    }
    target[index] = rounded(x);
}
