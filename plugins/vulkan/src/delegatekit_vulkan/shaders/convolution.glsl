// Accumulators of the convolutions: 8 pixels of 8 channels, as named vectors, since drivers on CPUs keep arrays in memory.
// aN are the channels 0 to 3 of pixel N, bN the channels 4 to 7.

#define ALL(MACRO) MACRO(0) MACRO(1) MACRO(2) MACRO(3) MACRO(4) MACRO(5) MACRO(6) MACRO(7)

#define DECLARE(N) vec4 a##N = first; vec4 b##N = second;

// NaN stays NaN, as in PyTorch.
vec4 clamped(vec4 value, float low, float high) {
    return mix(min(max(value, vec4(low)), vec4(high)), value, isnan(value));
}

vec4 stored(vec4 value, float low, float high) {
    vec4 result = CLAMP ? clamped(value, low, high) : value;
    return HALF ? vec4(rounded(result.x), rounded(result.y), rounded(result.z), rounded(result.w)) : result;
}
