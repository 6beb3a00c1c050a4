#version 450
//! Scales and zero points from the least and the largest element of each block, as torchao chooses them.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    // Of the integers.
    float low;
    float high;
    // Of the scale.
    float least_scale;
    // Of symmetric blocks.
    float zero_point;
};
// 0: steps from the least to the largest number; 1: symmetric about 0; 2: symmetric, with steps that reach both ends.
layout(constant_id = 1) const uint MAPPING = 0u;

layout(std430, binding = 0) readonly buffer Least { float least[]; };
layout(std430, binding = 1) readonly buffer Largest { float largest[]; };
layout(std430, binding = 2) writeonly buffer Scales { float scales[]; };
layout(std430, binding = 3) writeonly buffer ZeroPoints { int zero_points[]; };

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    // 0 has a step of its own.
    float bottom = least[index] > 0.0 ? 0.0 : least[index];
    float top = largest[index] < 0.0 ? 0.0 : largest[index];
    float scale;
    if (MAPPING == MAPPING_ASYMMETRIC) {
        scale = (top - bottom) / (high - low);
    } else if (MAPPING == MAPPING_SYMMETRIC) {
        scale = max(-bottom, top) / ((high - low) / 2.0);
    } else {
        scale = max(bottom / low, top / high);
    }
    scale = scale < least_scale ? least_scale : scale;
    float found = MAPPING == MAPPING_ASYMMETRIC ? clamp(low - roundEven(bottom / scale), low, high) : zero_point;
    scales[index] = rounded(scale);
    zero_points[index] = int(found);
}
