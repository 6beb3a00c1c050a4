#version 450
//! Rows of a table of 4-bit integers, eight in a word, at the indices of a list; with a scale for each group of a row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    // Rows of the table, its columns, words of a row.
    uint rows;
    uint columns;
    uint words;
    // Columns of a group, and groups of a row.
    uint group;
    uint groups;
    // Its number, from 1.
    uint call;
};

layout(std430, binding = 0) readonly buffer Table { uint table[]; };
layout(std430, binding = 1) readonly buffer Scales { float scales[]; };
layout(std430, binding = 2) readonly buffer Index { int index_of[]; };
layout(std430, binding = 3) writeonly buffer To { float target[]; };
// The last call that found an index out of range.
layout(std430, binding = 4) buffer Fault { uint fault; };

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint column = index % columns;
    int found = index_of[index / columns];
    if (found < 0 || found >= int(rows)) {
        atomicMax(fault, call);
    }
    // An index out of range must not read outside.
    uint row = uint(clamp(found, 0, int(rows) - 1));
    uint word = table[row * words + column / 8u];
    float value = float(bitfieldExtract(word, int(column % 8u * 4u), 4)) - 8.0;
    target[index] = rounded(value * scales[row * groups + column / group]);
}
