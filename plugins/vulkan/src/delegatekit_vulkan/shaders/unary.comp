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
    case 0u: return store(abs(x));
    case 1u: return store(cosine(x));
    case 2u: return store(exponential(x));
    case 3u: return store(gelu(x));
    case 4u: return store(gelu_by_tanh(x));
    case 5u: return store(x >= -a && x <= a ? 0.0 : x);
    case 6u: return store(x * (clamp_to(x + 3.0, 0.0, 6.0) / 6.0));
    case 7u: return store(clamp_to(x, a, b));
    case 8u: return store(-x);
    case 9u: return store(isnan(x) ? x : max(x, 0.0));
    case 10u: return store(sigmoid(x));
    case 11u: return store(sine(x));
    case 12u: return store(x < 0.0 ? NAN : sqrt(x));
    case 13u: return store(x < 0.0 ? NAN : 1.0 / sqrt(x));
    case 14u: return store(hyperbolic_tangent(x));
    case 15u: return store(roundEven(x));
    case 16u: return store(x > 0.0 ? x : x * a);
    case 17u: return store(decimal_logarithm(x));
    case 18u: return store(power(x, a));
    case 20u: return uint(x == a);
    case 21u: return uint(x != a);
    case 22u: return uint(x < a);
    case 23u: return uint(x <= a);
    case 24u: return uint(x > a);
    case 25u: return uint(x >= a);
    case 30u: return store(x);
    case 31u: return uint(whole_number(x));
    case 32u: return uint(x != 0.0);
    }
    return 0u;
}
#define READ uintBitsToFloat
#else
uint computed(int x) {
    int a = int(first_bits);
    int b = int(second_bits);
    switch (OPERATION) {
    case 0u: return store(abs(x));
    case 7u: return store(min(max(x, a), b));
    case 8u: return store(-x);
    case 9u: return store(max(x, 0));
    case 20u: return uint(x == a);
    case 21u: return uint(x != a);
    case 22u: return uint(x < a);
    case 23u: return uint(x <= a);
    case 24u: return uint(x > a);
    case 25u: return uint(x >= a);
    case 26u: return uint(x == 0);
    case 27u: return store(~x);
    case 30u: return floatBitsToUint(rounded(float(x)));
    case 32u: return uint(x != 0);
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
