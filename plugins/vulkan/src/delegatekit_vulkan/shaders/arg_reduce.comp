#version 450
//! The position of the largest or the least element along an axis: the first of equal ones, or the first NaN.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "exponential.glsl"

layout(push_constant) uniform Push {
    uint count;
    // Elements along the axis, elements of one part of it, and parts.
    uint size;
    uint length;
    uint parts;
    // Elements from one to the next along the axis.
    uint inner;
};
layout(constant_id = 1) const bool LEAST = false;
layout(constant_id = 2) const bool WHOLE = false;
// Whether the best positions of each part are known already.
layout(constant_id = 3) const bool KNOWN = false;

layout(std430, binding = 0) readonly buffer From { uint source[]; };
layout(std430, binding = 1) readonly buffer Known { int known[]; };
layout(std430, binding = 2) writeonly buffer To { int target[]; };

bool replaces(uint found, uint next) {
    if (WHOLE) {
        return LEAST ? int(next) < int(found) : int(next) > int(found);
    }
    float a = uintBitsToFloat(found);
    float b = uintBitsToFloat(next);
    return !is_nan(a) && (is_nan(b) || (LEAST ? b < a : b > a));
}

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint within = index % inner;
    uint part = KNOWN ? 0u : index / inner % parts;
    uint outer = KNOWN ? index / inner : index / inner / parts;
    uint start = outer * size * inner + within;
    uint candidates = outer * parts * inner + within;
    uint first = part * length;
    uint end = KNOWN ? parts : min(first + length, size);
    int place = KNOWN ? known[candidates] : int(first);
    uint found = source[start + uint(place) * inner];
    for (uint i = first + 1u; i < end; i++) {
        int here = KNOWN ? known[candidates + i * inner] : int(i);
        uint next = source[start + uint(here) * inner];
        if (replaces(found, next)) {
            found = next;
            place = here;
        }
    }
    target[index] = place;
}
