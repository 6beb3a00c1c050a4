// Functions of numbers as PyTorch defines them, with its special values.

#ifdef FLOAT
#define INFINITY uintBitsToFloat(0x7F800000u)
#define NAN uintBitsToFloat(0x7FC00000u)

uint store(float value) {
    return floatBitsToUint(rounded(value));
}

float quotient(float a, float b) {
    return a / b;
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
    bool odd = whole && abs(b) < 16777216.0 && (int(b) & 1) == 1;
    if (whole && abs(b) <= 16.0) {
        // Few factors are exact where the logarithm is not.
        float product = 1.0;
        int count = int(abs(b));
        for (int i = 0; i < count; i++) {
            product *= a;
        }
        return b < 0.0 ? 1.0 / product : product;
    }
    if (a < 0.0 && !whole && !isinf(b) && !isinf(a)) {
        return NAN;
    }
    float size = pow(abs(a), b);
    return a < 0.0 && odd ? -size : size;
}
#else
uint store(int value) {
    return uint(value);
}

int quotient(int a, int b) {
    return b == 0 ? 0 : a / b;
}

int truncated_quotient(int a, int b) {
    return quotient(a, b);
}

int floor_quotient(int a, int b) {
    int whole = quotient(a, b);
    return b != 0 && whole * b != a && ((a < 0) != (b < 0)) ? whole - 1 : whole;
}

int least(int a, int b) {
    return min(a, b);
}

int greatest(int a, int b) {
    return max(a, b);
}

int power(int a, int b) {
    int product = 1;
    for (int i = 0; i < b && i < 32; i++) {
        product *= a;
    }
    return b < 0 ? (a == 1 ? 1 : a == -1 ? ((b & 1) == 1 ? -1 : 1) : 0) : product;
}
#endif
