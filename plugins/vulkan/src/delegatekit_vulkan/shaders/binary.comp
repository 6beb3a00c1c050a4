#version 450
//! Functions of two tensors, broadcast against each other.
//! variants: float int
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    uint factor_bits;
    uint sizes[AXES];
    uint left_strides[AXES];
    uint right_strides[AXES];
};
layout(constant_id = 1) const uint OPERATION = 0u;
// How many of the axes, counted from the last, are used; 0: the operands lie as the result does.
layout(constant_id = 2) const uint RANK = AXES;
// Whether an invocation computes four elements that lie together; then sizes and strides count these.
layout(constant_id = 3) const bool WIDE = false;
// Whether an operand has one element for all four; then its strides count elements.
layout(constant_id = 4) const bool LEFT_SINGLE = false;
layout(constant_id = 5) const bool RIGHT_SINGLE = false;

layout(std430, binding = 0) readonly buffer Left { uint left[]; };
layout(std430, binding = 1) readonly buffer Right { uint right[]; };
layout(std430, binding = 2) writeonly buffer To { uint target[]; };
layout(std430, binding = 0) readonly buffer Left4 { uvec4 left4[]; };
layout(std430, binding = 1) readonly buffer Right4 { uvec4 right4[]; };
layout(std430, binding = 2) writeonly buffer To4 { uvec4 target4[]; };

#include "arithmetic.glsl"

#ifdef FLOAT
#define NUMBER float
#define READ uintBitsToFloat
#else
#define NUMBER int
#define READ int
#endif

uint computed(NUMBER a, NUMBER b) {
    NUMBER factor = READ(factor_bits);
    switch (OPERATION) {
    case 0u: return store(a + b * factor);
    case 1u: return store(a - b * factor);
    case 2u: return store(a * b);
#ifdef FLOAT
    case 3u: return store(a / b);
#endif
    case 4u: return store(floor_quotient(a, b));
    case 5u: return store(truncated_quotient(a, b));
    case 6u: return store(power(a, b));
    case 7u: return store(least(a, b));
    case 8u: return store(greatest(a, b));
    case 10u: return uint(a == b);
    case 11u: return uint(a != b);
    case 12u: return uint(a < b);
    case 13u: return uint(a <= b);
    case 14u: return uint(a > b);
    case 15u: return uint(a >= b);
#ifdef INT
    case 20u: return uint(a & b);
    case 21u: return uint(a | b);
    case 22u: return uint(a ^ b);
    case 23u: return uint(a != 0 && b != 0);
    case 24u: return uint(a != 0 || b != 0);
#endif
    }
    return 0u;
}

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint first = LEFT_SINGLE ? 0u : index;
    uint second = RIGHT_SINGLE ? 0u : index;
    if (RANK > 0u) {
        uint rest = index;
        first = 0u;
        second = 0u;
        for (uint axis = AXES; axis > AXES - RANK; axis--) {
            uint size = sizes[axis - 1u];
            uint place = rest % size;
            rest /= size;
            first += place * left_strides[axis - 1u];
            second += place * right_strides[axis - 1u];
        }
    }
    uvec4 a;
    uvec4 b;
    if (WIDE && !LEFT_SINGLE) {
        a = left4[first];
    } else {
        a = uvec4(left[first]);
    }
    if (WIDE && !RIGHT_SINGLE) {
        b = right4[second];
    } else {
        b = uvec4(right[second]);
    }
    [[unroll]] for (uint lane = 0u; lane < (WIDE ? 4u : 1u); lane++) {
        a[lane] = computed(READ(a[lane]), READ(b[lane]));
    }
    if (WIDE) {
        target4[index] = a;
    } else {
        target[index] = a.x;
    }
}
