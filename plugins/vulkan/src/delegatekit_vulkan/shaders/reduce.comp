#version 450
//! Sums and extremes along an axis, in parts of a given length.
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
    // What a sum is divided by, and what is added then.
    float divisor;
    float epsilon;
};
// 0: sum, 1: largest, 2: least; sums of 3: the exponential of what an element is above the row's shift, 4: the square of
// that.
layout(constant_id = 1) const uint OPERATION = 0u;
// What becomes of a sum.
layout(constant_id = 2) const uint FINISH = 0u;
// Whether each row has a shift; else it is 0.
layout(constant_id = 3) const bool SHIFTED = false;

layout(std430, binding = 0) readonly buffer From { float source[]; };
layout(std430, binding = 1) readonly buffer Shifts { float shifts[]; };
layout(std430, binding = 2) writeonly buffer To { float target[]; };

bool replaces(float found, float next) {
    // The first NaN stays.
    return !is_nan(found) && (is_nan(next) || (OPERATION == REDUCE_MAX ? next > found : next < found));
}

float joined(float found, float next) {
    if (OPERATION == REDUCE_MAX || OPERATION == REDUCE_MIN) {
        return replaces(found, next) ? next : found;
    }
    return found + next;
}

float element(uint place, float shift) {
    float x = source[place];
    if (OPERATION == REDUCE_SUM_EXPONENTIALS) {
        return exponential(x - shift);
    }
    if (OPERATION == REDUCE_SUM_SQUARES) {
        return (x - shift) * (x - shift);
    }
    return x;
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
    float shift = SHIFTED ? shifts[outer * inner + within] : 0.0;
    float found = 0.0;
    if (OPERATION == REDUCE_MAX || OPERATION == REDUCE_MIN) {
        found = source[start + first * inner];
    }
    // In short parts: a long sum loses small terms.
    for (uint block = first; block < end; block += 64u) {
        float here = element(start + block * inner, shift);
        for (uint i = block + 1u; i < min(block + 64u, end); i++) {
            here = joined(here, element(start + i * inner, shift));
        }
        found = joined(found, here);
    }
    if (FINISH > FINISH_NOTHING) {
        found = found / divisor;
    }
    if (FINISH == FINISH_INVERSE_ROOT) {
        found = 1.0 / sqrt(found + epsilon);
    }
    found = rounded(found);
    target[index] = found;
}
