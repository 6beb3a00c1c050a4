#version 450
//! Sums, products and extremes along an axis, in parts of a given length.
//! variants: float int
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "exponential.glsl"

layout(push_constant) uniform Push {
    // Results.
    uint count;
    // Elements along the axis, elements of one part of it, and parts.
    uint size;
    uint length;
    uint parts;
    // Elements from one to the next along the axis.
    uint inner;
    // What a sum is divided by.
    float divisor;
};
// 0: sum, 1: largest, 2: least, 3: product.
layout(constant_id = 1) const uint OPERATION = 0u;
layout(constant_id = 2) const bool DIVIDED = false;

#ifdef FLOAT
#define NUMBER float
#else
#define NUMBER int
#endif

layout(std430, binding = 0) readonly buffer From { NUMBER source[]; };
layout(std430, binding = 1) writeonly buffer To { NUMBER target[]; };

#ifdef FLOAT
bool replaces(float found, float next) {
    // The first NaN stays.
    return !is_nan(found) && (is_nan(next) || (OPERATION == 1u ? next > found : next < found));
}
#else
bool replaces(int found, int next) {
    return OPERATION == 1u ? next > found : next < found;
}
#endif

NUMBER joined(NUMBER found, NUMBER next) {
    if (OPERATION == 0u) {
        return found + next;
    }
    if (OPERATION == 3u) {
        return found * next;
    }
    return replaces(found, next) ? next : found;
}

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint within = index % inner;
    uint part = index / inner % parts;
    uint outer = index / inner / parts;
    uint first = part * length;
    uint end = min(first + length, size);
    uint start = outer * size * inner + within;
    NUMBER found = NUMBER(OPERATION == 3u ? 1 : 0);
    if (OPERATION == 1u || OPERATION == 2u) {
        found = source[start + first * inner];
    }
    // In short parts: a long sum loses small terms.
    for (uint block = first; block < end; block += 64u) {
        NUMBER here = source[start + block * inner];
        for (uint i = block + 1u; i < min(block + 64u, end); i++) {
            here = joined(here, source[start + i * inner]);
        }
        found = joined(found, here);
    }
#ifdef FLOAT
    if (DIVIDED) {
        found = found / divisor;
    }
    found = rounded(found);
#endif
    target[index] = found;
}
