// Exponential and logarithm to nearly the last bit: what drivers have of their own may be far less exact, and need not
// know infinity and NaN.

#define INFINITE uintBitsToFloat(0x7F800000u)
#define NOT_A_NUMBER uintBitsToFloat(0x7FC00000u)

bool is_nan(float x) {
    return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u;
}

float exponential(float x) {
    if (is_nan(x)) {
        return x;
    }
    // Beyond these float32 has 0 and infinity only.
    float bounded = clamp(x, -104.0, 89.0);
    float whole = floor(bounded * 1.44269504 + 0.5);
    // The rest, with log(2) in two parts of which the first has few bits.
    float rest = (bounded - whole * 0.693359375) + whole * 2.12194440e-4;
    float series = 1.0 + rest * (1.0 + rest * (0.5 + rest * (0.16666667 + rest * (0.041666668
        + rest * (0.008333334 + rest * (0.0013888889 + rest * 0.00019841270))))));
    // 2^whole in two factors: one alone may lie beyond the normal numbers.
    int power = int(whole);
    int half_power = power / 2;
    float one = intBitsToFloat((half_power + 127) << 23);
    float other = intBitsToFloat((power - half_power + 127) << 23);
    return series * one * other;
}

float logarithm(float x) {
    if (is_nan(x) || x < 0.0) {
        return NOT_A_NUMBER;
    }
    if (x == 0.0) {
        return -INFINITE;
    }
    if (x == INFINITE) {
        return x;
    }
    int power = 0;
    if (x < 1.17549435e-38) {
        x *= 8388608.0;
        power = -23;
    }
    uint bits = floatBitsToUint(x);
    // A mantissa between sqrt(1/2) and sqrt(2).
    power += int(bits >> 23) - 127;
    float mantissa = uintBitsToFloat((bits & 0x007FFFFFu) | 0x3F800000u);
    if (mantissa > 1.41421354) {
        mantissa *= 0.5;
        power += 1;
    }
    float above = mantissa - 1.0;
    // log(m) = 2 * artanh(s) with s = (m - 1) / (m + 1).
    float s = above / (2.0 + above);
    float square = s * s;
    float series = square * (0.66666667 + square * (0.4 + square * (0.28571429 + square * (0.22222222 + square * 0.18181818))));
    float half_square = 0.5 * above * above;
    float scaled = float(power);
    return scaled * 0.693359375 + (above - (half_square - (s * (half_square + series) - scaled * 2.12194440e-4)));
}
