#version 450
//! Sums of products of integers, or integers of another scale, to integers: scaled by channels, a bias added, quantized.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "quantization.glsl"

layout(push_constant) uniform Push {
    // Groups of four elements.
    uint count;
    uint channels;
    // Elements of a channel that lie together.
    uint inner;
    // Of integers: what stands for 0, and what all are multiplied by.
    float zero_point;
    float factor;
    float inverse;
    float new_zero_point;
    float low;
    float high;
};
// Whether the source has sums, with a factor for each channel; else it has integers.
layout(constant_id = 1) const bool SUMS = false;
layout(constant_id = 2) const bool BIAS = false;
layout(constant_id = 3) const bool RELU = false;
// Whether four elements are in one channel.
layout(constant_id = 4) const bool SINGLE = false;

layout(std430, binding = 0) readonly buffer Sums { vec4 sums[]; };
layout(std430, binding = 0) readonly buffer Integers { ivec4 integers[]; };
layout(std430, binding = 1) readonly buffer Factors { float factors[]; };
layout(std430, binding = 2) readonly buffer Bias { float bias[]; };
layout(std430, binding = 3) writeonly buffer To { ivec4 target[]; };

int computed(float x, uint channel) {
    x *= SUMS ? factors[channel] : factor;
    if (BIAS) {
        x += bias[channel];
    }
    if (RELU) {
        x = isnan(x) ? x : max(x, 0.0);
    }
    return int(step_of(x, inverse, new_zero_point, low, high));
}

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    vec4 x = SUMS ? sums[index] : vec4(integers[index]) - zero_point;
    uvec4 channel = uvec4(0u);
    if (SUMS && SINGLE) {
        channel = uvec4(index * 4u / inner % channels);
    } else if (SUMS) {
        channel = (index * 4u + uvec4(0u, 1u, 2u, 3u)) / inner % channels;
    }
    target[index] = ivec4(
        computed(x.x, channel.x), computed(x.y, channel.y), computed(x.z, channel.z), computed(x.w, channel.w));
}
