#version 450
//! Functions of one tensor, conversions, and comparisons with a number; four elements at a time.
//! variants: float int
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"

layout(push_constant) uniform Push {
    // Groups of four elements.
    uint count;
    uint first_bits;
    uint second_bits;
};
layout(constant_id = 1) const uint OPERATION = 0u;
// Elements of a group. Known to drivers only: they unroll the loop over them, and here each function is compiled once.
layout(constant_id = 2) const uint LANES = 4u;

layout(std430, binding = 0) readonly buffer From { uvec4 source[]; };
layout(std430, binding = 1) writeonly buffer To { uvec4 target[]; };

#include "arithmetic.glsl"

#ifdef FLOAT
uint computed(float x) {
    float a = uintBitsToFloat(first_bits);
    float b = uintBitsToFloat(second_bits);
    switch (OPERATION) {
    case UNARY_ABS: return store(abs(x));
    case UNARY_COS: return store(cosine(x));
    case UNARY_EXP: return store(exponential(x));
    case UNARY_GELU: return store(gelu(x));
    case UNARY_GELU_TANH: return store(gelu_by_tanh(x));
    case UNARY_HARDSHRINK: return store(x >= -a && x <= a ? 0.0 : x);
    case UNARY_HARDSWISH: return store(x * (clamp_to(x + 3.0, 0.0, 6.0) / 6.0));
    case UNARY_CLAMP: return store(clamp_to(x, a, b));
    case UNARY_NEG: return store(-x);
    case UNARY_RELU: return store(isnan(x) ? x : max(x, 0.0));
    case UNARY_SIGMOID: return store(sigmoid(x));
    case UNARY_SIN: return store(sine(x));
    case UNARY_SQRT: return store(x < 0.0 ? NAN : sqrt(x));
    case UNARY_RSQRT: return store(x < 0.0 ? NAN : 1.0 / sqrt(x));
    case UNARY_TANH: return store(hyperbolic_tangent(x));
    case UNARY_ROUND: return store(roundEven(x));
    case UNARY_LEAKY_RELU: return store(x > 0.0 ? x : x * a);
    case UNARY_LOG10: return store(decimal_logarithm(x));
    case UNARY_POWER: return store(power(x, a));
    case UNARY_EQ: return uint(x == a);
    case UNARY_NE: return uint(x != a);
    case UNARY_LT: return uint(x < a);
    case UNARY_LE: return uint(x <= a);
    case UNARY_GT: return uint(x > a);
    case UNARY_GE: return uint(x >= a);
    case UNARY_TO_FLOAT: return store(x);
    case UNARY_TO_INT: return uint(whole_number(x));
    case UNARY_TO_BOOL: return uint(x != 0.0);
    }
    return 0u;
}
#define READ uintBitsToFloat
#else
uint computed(int x) {
    int a = int(first_bits);
    int b = int(second_bits);
    switch (OPERATION) {
    case UNARY_ABS: return store(abs(x));
    case UNARY_CLAMP: return store(min(max(x, a), b));
    case UNARY_NEG: return store(-x);
    case UNARY_RELU: return store(max(x, 0));
    case UNARY_EQ: return uint(x == a);
    case UNARY_NE: return uint(x != a);
    case UNARY_LT: return uint(x < a);
    case UNARY_LE: return uint(x <= a);
    case UNARY_GT: return uint(x > a);
    case UNARY_GE: return uint(x >= a);
    case UNARY_IS_ZERO: return uint(x == 0);
    case UNARY_COMPLEMENT: return store(~x);
    case UNARY_TO_FLOAT: return floatBitsToUint(rounded(float(x)));
    case UNARY_TO_BOOL: return uint(x != 0);
    }
    return 0u;
}
#define READ int
#endif

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uvec4 words = source[index];
    [[unroll]] for (uint lane = 0u; lane < LANES; lane++) {
        words[lane] = computed(READ(words[lane]));
    }
    target[index] = words;
}
