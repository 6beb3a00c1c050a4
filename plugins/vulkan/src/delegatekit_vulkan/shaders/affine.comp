#version 450
//! Between numbers and the integers that stand for them, by one scale and zero point or those of each block.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "quantization.glsl"

layout(push_constant) uniform Push {
    uint count;
    // Of all elements, where blocks have none.
    float common_scale;
    float common_inverse;
    float common_zero_point;
    float low;
    float high;
    uint sizes[LIMIT_AXES];
    uint strides[LIMIT_AXES];
};
// 0: numbers to integers, 1: integers to numbers, 2: numbers to the numbers that their integers stand for.
layout(constant_id = 1) const uint OPERATION = 0u;
// How many of the axes, counted from the last, are used; 0: the blocks lie as the elements do.
layout(constant_id = 2) const uint RANK = LIMIT_AXES;
// Whether an invocation computes four elements that lie together; then sizes and strides count these.
layout(constant_id = 3) const bool WIDE = false;
// Whether the four are in one block; then strides count blocks.
layout(constant_id = 4) const bool SINGLE = false;
// Whether blocks have scales, and zero points.
layout(constant_id = 5) const bool SCALES = false;
layout(constant_id = 6) const bool ZERO_POINTS = false;

layout(std430, binding = 0) readonly buffer From { uint source[]; };
layout(std430, binding = 0) readonly buffer From4 { uvec4 source4[]; };
layout(std430, binding = 1) readonly buffer Scales { float scales[]; };
layout(std430, binding = 2) readonly buffer ZeroPoints { int zero_points[]; };
layout(std430, binding = 3) writeonly buffer To { uint target[]; };
layout(std430, binding = 3) writeonly buffer To4 { uvec4 target4[]; };

uint computed(uint word, uint block) {
    float scale = SCALES ? scales[block] : common_scale;
    float zero_point = ZERO_POINTS ? float(zero_points[block]) : common_zero_point;
    float found;
    if (OPERATION == AFFINE_DEQUANTIZE) {
        found = float(int(word));
    } else {
        float inverse = SCALES ? 1.0 / scale : common_inverse;
        found = step_of(uintBitsToFloat(word), inverse, zero_point, low, high);
    }
    return OPERATION == AFFINE_QUANTIZE ? uint(int(found)) : floatBitsToUint(rounded((found - zero_point) * scale));
}

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint block = SINGLE ? 0u : index;
    if (RANK > 0u) {
        uint rest = index;
        block = 0u;
        for (uint axis = LIMIT_AXES; axis > LIMIT_AXES - RANK; axis--) {
            block += rest % sizes[axis - 1u] * strides[axis - 1u];
            rest /= sizes[axis - 1u];
        }
    }
    if (WIDE) {
        uint next = SINGLE ? 0u : 1u;
        block *= SINGLE ? 1u : 4u;
        uvec4 words = source4[index];
        target4[index] = uvec4(
            computed(words.x, block), computed(words.y, block + next), computed(words.z, block + 2u * next),
            computed(words.w, block + 3u * next));
    } else {
        target[index] = computed(source[index], block);
    }
}
