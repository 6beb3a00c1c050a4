// Functions of float32 numbers, as exact as PyTorch's: those of drivers may be wrong from the fourth digit on.

#ifndef INFINITY
#define INFINITY uintBitsToFloat(0x7F800000u)
#define NAN uintBitsToFloat(0x7FC00000u)
#endif

// ln 2 in two parts; the first has 9 bits, so that its products with small whole numbers are exact.
#define LN2_HIGH 0.693359375
#define LN2_LOW -2.12194440e-4

// A power of two, normal: -126 <= exponent <= 127.
float power_of_two(int exponent) {
    return uintBitsToFloat(uint(exponent + 127) << 23);
}

// e to the power of a number is 2^whole times e to the power of the result.
float part_of_exponent(float x, out float whole) {
    // Beyond these float32 has 0 and infinity only.
    float bounded = clamp(x, -104.0, 89.0);
    whole = roundEven(bounded * 1.44269504);
    precise float rest = bounded - whole * LN2_HIGH;
    rest = rest - whole * LN2_LOW;
    return rest;
}

// 2^whole times e to the power of the rest, which is small.
float exponential_of_parts(float whole, float rest) {
    float series = 1.0 / 720.0 + rest * (1.0 / 5040.0);
    series = 1.0 / 120.0 + rest * series;
    series = 1.0 / 24.0 + rest * series;
    series = 1.0 / 6.0 + rest * series;
    series = 0.5 + rest * series;
    float result = 1.0 + (rest + rest * rest * series);
    // In two steps: the largest and smallest results need powers that are no normal numbers.
    int exponent = int(whole);
    int part = exponent / 2;
    return result * power_of_two(part) * power_of_two(exponent - part);
}

float exponential(float x) {
    float whole;
    float rest = part_of_exponent(x, whole);
    return isnan(x) ? x : exponential_of_parts(whole, rest);
}

// e to the power of high + low, where low is small.
float exponential(float high, float low) {
    float whole;
    precise float rest = part_of_exponent(high, whole) + low;
    return exponential_of_parts(whole, rest);
}

// A positive, finite number as 2^exponent * (1 + fraction), with the second factor between sqrt(1/2) and sqrt(2).
void split(float x, out float exponent, out float fraction) {
    bool tiny = x < 1.17549435e-38;
    uint bits = floatBitsToUint(tiny ? x * 8388608.0 : x);
    // The bits of sqrt(1/2), and of 1.
    uint shifted = bits - 0x3F3504F3u;
    int whole = int(shifted) >> 23;
    exponent = float(tiny ? whole - 23 : whole);
    fraction = uintBitsToFloat((shifted & 0x007FFFFFu) + 0x3F3504F3u) - 1.0;
}

// 2 artanh(s) - 2 s
float artanh_rest(float s) {
    float square = s * s;
    float series = 2.0 / 9.0 + square * (2.0 / 11.0);
    series = 2.0 / 7.0 + square * series;
    series = 2.0 / 5.0 + square * series;
    series = 2.0 / 3.0 + square * series;
    return s * square * series;
}

// ln(1 + fraction) of what `split` makes: fraction + the result.
float logarithm_rest(float fraction) {
    // ln(1 + f) = 2 artanh(f / (2 + f)), and 2 f / (2 + f) = f - f^2 / (2 + f).
    float s = fraction / (2.0 + fraction);
    return artanh_rest(s) - s * fraction;
}

float decimal_logarithm(float x) {
    if (!(x > 0.0) || isinf(x)) {
        return x == 0.0 ? -INFINITY : x > 0.0 ? x : NAN;
    }
    float exponent, fraction;
    split(x, exponent, fraction);
    precise float low = exponent * 4.60503898e-6 + (fraction + logarithm_rest(fraction)) * 0.434294482;
    return exponent * 0.301025391 + low;
}

// -- numbers of twice the length -------------------------------------------------------------------------------------

// a * b is the result and its error.
float product(float a, float b, out float error) {
    precise float left = a * 4097.0;
    precise float a_high = left - (left - a);
    precise float a_low = a - a_high;
    precise float right = b * 4097.0;
    precise float b_high = right - (right - b);
    precise float b_low = b - b_high;
    precise float result = a * b;
    precise float rest = a_high * b_high - result;
    rest = rest + a_high * b_low;
    rest = rest + a_low * b_high;
    error = rest + a_low * b_low;
    return result;
}

// size^exponent for a positive, finite size and a finite exponent.
float positive_power(float size, float exponent) {
    float whole, fraction;
    split(size, whole, fraction);
    // The quotient f / (2 + f) and its error.
    precise float divisor = 2.0 + fraction;
    precise float lost = fraction - (divisor - 2.0);
    precise float s = fraction / divisor;
    float error;
    precise float back = product(s, divisor, error);
    precise float rest = ((fraction - back) - error) - s * lost;
    precise float s_low = rest / divisor;
    // whole * LN2_HIGH is exact; adding 2 s to it loses what `rounding` gets.
    precise float first = whole * LN2_HIGH;
    precise float second = 2.0 * s;
    precise float sum = first + second;
    precise float kept = sum - first;
    precise float rounding = (first - (sum - kept)) + (second - kept);
    rounding = rounding + (whole * LN2_LOW + (2.0 * s_low + artanh_rest(s)));
    // Many times `low` must still be small.
    precise float high = sum + rounding;
    precise float low = rounding - (high - sum);
    // Exponents beyond the range of results: also of those that a splitting could not hold.
    if (abs(exponent * high) > 200.0) {
        return (exponent > 0.0) == (high > 0.0) ? INFINITY : 0.0;
    }
    if (abs(exponent) > 1e30) {
        return 1.0 + exponent * (high + low);
    }
    precise float power = product(exponent, high, error);
    return exponential(power, error + exponent * low);
}

// -- waves ---------------------------------------------------------------------------------------------------------------

// Bits of 2 / pi, after 32 zeros.
uint two_over_pi(int index) {
    switch (index) {
    case 1: return 0xA2F9836Eu;
    case 2: return 0x4E441529u;
    case 3: return 0xFC2757D1u;
    case 4: return 0xF534DDC0u;
    case 5: return 0xDB629599u;
    case 6: return 0x3C439041u;
    case 7: return 0xFE5163ABu;
    }
    return 0u;
}

// 32 bits of 2 / pi from one on.
uint two_over_pi_from(int bit) {
    uint shift = uint(bit) & 31u;
    uint first = two_over_pi(bit >> 5);
    return shift == 0u ? first : (first << shift) | (two_over_pi((bit >> 5) + 1) >> (32u - shift));
}

// x = quadrant * pi / 2 + result, for finite x; the result is between -pi/4 and pi/4.
float reduced(float x, out uint quadrant) {
    if (abs(x) < 32768.0) {
        // pi/2 in parts, of which the first have 8 and 9 bits: products with the quadrant are exact.
        float turns = roundEven(x * 0.636619772);
        quadrant = uint(int(turns));
        precise float rest = x - turns * 1.5703125;
        rest = rest - turns * 0.00048351287841796875;
        rest = rest - turns * 3.1385570764541626e-07;
        return rest - turns * 6.07710062827671e-11;
    }
    // Of x * 2 / pi only what is left of multiples of 4 counts: 96 bits of 2 / pi, times 24 bits of x.
    uint bits = floatBitsToUint(abs(x));
    int exponent = int(bits >> 23) - 150;
    uint mantissa = (bits & 0x007FFFFFu) | 0x00800000u;
    int start = exponent + 30;
    uint carry, high, middle, unused;
    umulExtended(mantissa, two_over_pi_from(start + 64), carry, unused);
    umulExtended(mantissa, two_over_pi_from(start + 32), high, middle);
    uint sum = middle + carry;
    uint top = mantissa * two_over_pi_from(start) + high + uint(sum < middle);
    quadrant = (top + 0x20000000u) >> 30;
    top -= quadrant << 30;
    bool negative = (top & 0x80000000u) != 0u;
    if (negative) {
        sum = ~sum + 1u;
        top = ~top + uint(sum == 0u);
    }
    float rest = (float(top) * 9.31322575e-10 + float(sum) * 2.16840434e-19) * 1.57079633;
    if ((x < 0.0) != negative) {
        rest = -rest;
    }
    if (x < 0.0) {
        quadrant = 0u - quadrant;
    }
    return rest;
}

// The sine of x + quadrant * pi / 2.
float wave(float x, uint quadrant) {
    if (isnan(x) || isinf(x)) {
        return NAN;
    }
    uint more;
    float rest = reduced(x, more);
    quadrant += more;
    float square = rest * rest;
    float result;
    if ((quadrant & 1u) == 0u) {
        float series = -1.0 / 5040.0 + square * (1.0 / 362880.0);
        series = 1.0 / 120.0 + square * series;
        series = -1.0 / 6.0 + square * series;
        result = rest + rest * square * series;
    } else {
        float series = 1.0 / 40320.0 - square * (1.0 / 3628800.0);
        series = -1.0 / 720.0 + square * series;
        series = 1.0 / 24.0 + square * series;
        result = 1.0 - (0.5 * square - square * square * series);
    }
    return (quadrant & 2u) == 0u ? result : -result;
}

float sine(float x) {
    // A small number, and the zero with its sign, is its own sine.
    return abs(x) < 1e-4 ? x : wave(x, 0u);
}

float cosine(float x) {
    return wave(x, 1u);
}

// -- functions of the exponential --------------------------------------------------------------------------------------

float hyperbolic_tangent(float x) {
    float size = abs(x);
    if (size < 0.6) {
        // Six steps of tanh x = x / (1 + x^2 / (3 + x^2 / (5 + ...))).
        float square = x * x;
        float above = 10395.0 + square * (1260.0 + square * 21.0);
        float below = 10395.0 + square * (4725.0 + square * (210.0 + square));
        return x * (above / below);
    }
    float result = 1.0 - 2.0 / (exponential(2.0 * size) + 1.0);
    return isnan(x) ? x : x < 0.0 ? -result : result;
}

float sigmoid(float x) {
    return 1.0 / (1.0 + exponential(-x));
}

// The complement of the error function, for x >= 0: e^(-x^2) / (1 + x/2) times a polynomial that was fitted to it.
float error_complement(float x) {
    float t = 1.0 / (1.0 + 0.5 * x);
    float series = -0.23462527990341187 + t * 0.043165504932403564;
    series = 0.4935871660709381 + t * series;
    series = -0.45503586530685425 + t * series;
    series = 0.1323860138654709 + t * series;
    series = -0.0593847781419754 + t * series;
    series = 0.09352895617485046 + t * series;
    series = 0.17530471086502075 + t * series;
    series = 0.24688497185707092 + t * series;
    series = 0.2820938229560852 + t * series;
    series = 0.282094806432724 + t * series;
    float low;
    if (x > 12.0) {
        return 0.0;
    }
    float square = product(x, x, low);
    return t * series * exponential(-square, -low);
}

// x times the probability that a normal variable is below x.
float gelu(float x) {
    float below = 0.5 * error_complement(abs(x) * 0.707106781);
    if (isnan(x) || x <= 0.0) {
        return x * below;
    }
    return below == 0.0 ? x : x - x * below;
}

float gelu_by_tanh(float x) {
    // x (1 + tanh u) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3)
    return x * sigmoid(1.59576912 * (x + 0.044715 * x * x * x));
}
