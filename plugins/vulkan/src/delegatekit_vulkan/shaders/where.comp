#version 450
//! One of two tensors, element by element, as a third one says; all broadcast against each other.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"


layout(push_constant) uniform Push {
    uint count;
    uint sizes[LIMIT_WHERE_AXES];
    uint condition_strides[LIMIT_WHERE_AXES];
    uint left_strides[LIMIT_WHERE_AXES];
    uint right_strides[LIMIT_WHERE_AXES];
};
// As in binary.comp.
layout(constant_id = 1) const uint RANK = LIMIT_WHERE_AXES;
layout(constant_id = 2) const bool WIDE = false;
layout(constant_id = 3) const bool CONDITION_SINGLE = false;
layout(constant_id = 4) const bool LEFT_SINGLE = false;
layout(constant_id = 5) const bool RIGHT_SINGLE = false;

layout(std430, binding = 0) readonly buffer Condition { uint condition[]; };
layout(std430, binding = 1) readonly buffer Left { uint left[]; };
layout(std430, binding = 2) readonly buffer Right { uint right[]; };
layout(std430, binding = 3) writeonly buffer To { uint target[]; };
layout(std430, binding = 0) readonly buffer Condition4 { uvec4 condition4[]; };
layout(std430, binding = 1) readonly buffer Left4 { uvec4 left4[]; };
layout(std430, binding = 2) readonly buffer Right4 { uvec4 right4[]; };
layout(std430, binding = 3) writeonly buffer To4 { uvec4 target4[]; };

// Operands of a float16 result may be float32.
uint stored(uint word) {
    return HALF ? floatBitsToUint(rounded(uintBitsToFloat(word))) : word;
}

uint chosen(uint which, uint yes, uint no) {
    return stored(which != 0u ? yes : no);
}

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint which = CONDITION_SINGLE ? 0u : index;
    uint first = LEFT_SINGLE ? 0u : index;
    uint second = RIGHT_SINGLE ? 0u : index;
    if (RANK > 0u) {
        uint rest = index;
        which = 0u;
        first = 0u;
        second = 0u;
        for (uint axis = LIMIT_WHERE_AXES; axis > LIMIT_WHERE_AXES - RANK; axis--) {
            uint size = sizes[axis - 1u];
            uint place = rest % size;
            rest /= size;
            which += place * condition_strides[axis - 1u];
            first += place * left_strides[axis - 1u];
            second += place * right_strides[axis - 1u];
        }
    }
    if (WIDE) {
        uvec4 a = CONDITION_SINGLE ? uvec4(condition[which]) : condition4[which];
        uvec4 b = LEFT_SINGLE ? uvec4(left[first]) : left4[first];
        uvec4 c = RIGHT_SINGLE ? uvec4(right[second]) : right4[second];
        target4[index] =
            uvec4(chosen(a.x, b.x, c.x), chosen(a.y, b.y, c.y), chosen(a.z, b.z, c.z), chosen(a.w, b.w, c.w));
    } else {
        target[index] = chosen(condition[which], left[first], right[second]);
    }
}
