// From numbers to small integers, as PyTorch computes it.

// The step that is nearest to a number, the even one of two that are as near; NaN becomes 0.
float step_of(float x, float inverse, float zero_point, float low, float high) {
    if ((floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u) {
        return 0.0;
    }
    return clamp(roundEven(x * inverse) + zero_point, low, high);
}
