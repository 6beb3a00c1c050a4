#version 450
//! Rotary embedding: pairs of elements of a head are turned by the angles of their position.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    // Elements; of a head; heads of a position; positions.
    uint count;
    uint size;
    uint heads;
    uint positions;
    // How many elements of a head are turned, and numbers of a row and the first row of the table of angles.
    uint turned;
    uint row;
    uint first;
};
// 0: neighbours are a pair, tables of cosines and sines have a number for each pair; 1: likewise, both are interleaved in
// one table; 2: the halves are pairs, tables have a number for each element.
layout(constant_id = 1) const uint KIND = 0u;

layout(std430, binding = 0) readonly buffer From { float source[]; };
layout(std430, binding = 1) readonly buffer Cosines { float cosines[]; };
layout(std430, binding = 2) readonly buffer Sines { float sines[]; };
layout(std430, binding = 3) writeonly buffer To { float target[]; };

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint at = index % size;
    float x = source[index];
    if (at >= turned) {
        target[index] = x;
        return;
    }
    uint angles = (first + index / size / heads % positions) * row;
    bool second = KIND == ROTARY_HALVES ? at >= turned / 2u : at % 2u == 1u;
    uint apart = KIND == ROTARY_HALVES ? turned / 2u : 1u;
    float other = source[second ? index - apart : index + apart];
    uint place = KIND == ROTARY_HALVES ? at : at / 2u;
    float cosine = cosines[angles + (KIND == ROTARY_INTERLEAVED ? place * 2u : place)];
    float sine = sines[angles + (KIND == ROTARY_INTERLEAVED ? place * 2u + 1u : place)];
    target[index] = rounded(x * cosine + (second ? other : -other) * sine);
}
