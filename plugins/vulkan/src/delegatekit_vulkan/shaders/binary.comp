#version 450
//! Functions of two tensors, broadcast against each other.
//! variants: float int
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    uint factor_bits;
    uint sizes[LIMIT_AXES];
    uint left_strides[LIMIT_AXES];
    uint right_strides[LIMIT_AXES];
};
layout(constant_id = 1) const uint OPERATION = 0u;
// How many of the axes, counted from the last, are used; 0: the operands lie as the result does.
layout(constant_id = 2) const uint RANK = LIMIT_AXES;
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
    case BINARY_ADD: return store(a + b * factor);
    case BINARY_SUB: return store(a - b * factor);
    case BINARY_MUL: return store(a * b);
#ifdef FLOAT
    case BINARY_DIV: return store(a / b);
#endif
    case BINARY_FLOOR_DIV: return store(floor_quotient(a, b));
    case BINARY_TRUNC_DIV: return store(truncated_quotient(a, b));
    case BINARY_POW: return store(power(a, b));
    case BINARY_MIN: return store(least(a, b));
    case BINARY_MAX: return store(greatest(a, b));
    case BINARY_EQ: return uint(a == b);
    case BINARY_NE: return uint(a != b);
    case BINARY_LT: return uint(a < b);
    case BINARY_LE: return uint(a <= b);
    case BINARY_GT: return uint(a > b);
    case BINARY_GE: return uint(a >= b);
#ifdef INT
    case BINARY_AND: return uint(a & b);
    case BINARY_OR: return uint(a | b);
    case BINARY_XOR: return uint(a ^ b);
    case BINARY_BOTH: return uint(a != 0 && b != 0);
    case BINARY_EITHER: return uint(a != 0 || b != 0);
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
        for (uint axis = LIMIT_AXES; axis > LIMIT_AXES - RANK; axis--) {
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
