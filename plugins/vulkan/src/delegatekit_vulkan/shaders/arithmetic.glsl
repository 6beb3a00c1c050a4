// Functions of numbers as PyTorch defines them, with its special values.

#ifdef FLOAT
#include "functions.glsl"

uint store(float value) {
    return floatBitsToUint(rounded(value));
}

float truncated_quotient(float a, float b) {
    return trunc(a / b);
}

float floor_quotient(float a, float b) {
    // As PyTorch: exact where a / b is rounded up to a whole number.
    if (b == 0.0 || isinf(a) || isnan(a) || isnan(b)) {
        return a / b;
    }
    float rest = a - b * trunc(a / b);
    float whole = (a - rest) / b;
    if (rest != 0.0 && ((b < 0.0) != (rest < 0.0))) {
        whole -= 1.0;
    }
    float result = floor(whole);
    return whole - result > 0.5 ? result + 1.0 : result;
}

float least(float a, float b) {
    return isnan(a) || isnan(b) ? NAN : min(a, b);
}

float greatest(float a, float b) {
    return isnan(a) || isnan(b) ? NAN : max(a, b);
}

// As PyTorch: a NaN stays one, and the upper bound wins.
float clamp_to(float x, float low, float high) {
    return isnan(x) ? x : min(max(x, low), high);
}

// Without its fraction; what int32 cannot hold becomes the nearest that it can, and a NaN 0.
int whole_number(float x) {
    if (isnan(x)) {
        return 0;
    }
    return x >= 2147483648.0 ? 2147483647 : x <= -2147483648.0 ? int(0x80000000u) : int(x);
}

float power(float a, float b) {
    if (b == 0.0 || a == 1.0) {
        return 1.0;
    }
    if (isnan(a) || isnan(b)) {
        return NAN;
    }
    if (b == 1.0) {
        return a;
    }
    if (b == 2.0) {
        return a * a;
    }
    if (b == 0.5) {
        return isinf(a) ? INFINITY : sqrt(a);
    }
    if (b == -1.0) {
        return 1.0 / a;
    }
    bool whole = floor(b) == b;
    bool odd = whole && abs(b) < 16777216.0 && mod(abs(b), 2.0) == 1.0;
    if (whole && abs(b) <= 4.0) {
        float result = a * a * (abs(b) > 2.0 ? a : 1.0) * (abs(b) > 3.0 ? a : 1.0);
        return b < 0.0 ? 1.0 / result : result;
    }
    float size = abs(a);
    if (a < 0.0 && !whole && !isinf(a)) {
        return NAN;
    }
    if (size == 0.0 || isinf(size)) {
        size = (size == 0.0) == (b > 0.0) ? 0.0 : INFINITY;
    } else if (isinf(b)) {
        size = size == 1.0 ? 1.0 : (size > 1.0) == (b > 0.0) ? INFINITY : 0.0;
    } else {
        size = positive_power(size, b);
    }
    return a < 0.0 && odd ? -size : size;
}
#else
uint store(int value) {
    return uint(value);
}

int truncated_quotient(int a, int b) {
    // Drivers may divide in all lanes, also by 0, or the least number by -1, which processors do not survive.
    int divisor = b == 0 || b == -1 ? 1 : b;
    int whole = a / divisor;
    return b == 0 ? 0 : b == -1 ? -a : whole;
}

int floor_quotient(int a, int b) {
    int whole = truncated_quotient(a, b);
    return b != 0 && whole * b != a && ((a < 0) != (b < 0)) ? whole - 1 : whole;
}

int least(int a, int b) {
    return min(a, b);
}

int greatest(int a, int b) {
    return max(a, b);
}

int power(int a, int b) {
    if (b < 0) {
        return a == 1 ? 1 : a == -1 ? ((b & 1) == 1 ? -1 : 1) : 0;
    }
    int result = 1;
    for (; b > 0; b >>= 1) {
        result *= (b & 1) == 1 ? a : 1;
        a *= a;
    }
    return result;
}
#endif
