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
// Whether the best positions of each part are known already.
layout(constant_id = 2) const bool KNOWN = false;

layout(std430, binding = 0) readonly buffer From { float source[]; };
layout(std430, binding = 1) readonly buffer Known { int known[]; };
layout(std430, binding = 2) writeonly buffer To { int target[]; };

bool replaces(float found, float next) {
    return !is_nan(found) && (is_nan(next) || (LEAST ? next < found : next > found));
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
    float found = source[start + uint(place) * inner];
    for (uint i = first + 1u; i < end; i++) {
        int here = KNOWN ? known[candidates + i * inner] : int(i);
        float next = source[start + uint(here) * inner];
        if (replaces(found, next)) {
            found = next;
            place = here;
        }
    }
    target[index] = place;
}
