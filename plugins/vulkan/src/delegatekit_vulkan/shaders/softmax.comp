#version 450
//! Exponentials along an axis divided by their sum, or the logarithm of that.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "exponential.glsl"

layout(push_constant) uniform Push {
    // Rows, and elements of one.
    uint rows;
    uint size;
    // Elements from one of a row to the next.
    uint inner;
    // Of attention: a row sees its own position and those before; the first row's position, and rows of one head.
    uint first_position;
    uint positions;
};
// Whether rows are whole vectors of four.
layout(constant_id = 1) const bool VECTORS = false;
layout(constant_id = 2) const bool LOGARITHM = false;
layout(constant_id = 3) const bool CAUSAL = false;

layout(std430, binding = 0) readonly buffer From { float source[]; };
layout(std430, binding = 0) readonly buffer FromVectors { vec4 source_vectors[]; };
layout(std430, binding = 1) writeonly buffer To { float target[]; };
layout(std430, binding = 1) writeonly buffer ToVectors { vec4 target_vectors[]; };

vec4 exponentials(vec4 x) {
    return vec4(exponential(x.x), exponential(x.y), exponential(x.z), exponential(x.w));
}

float largest(vec4 x) {
    return max(max(x.x, x.y), max(x.z, x.w));
}

float result(float below, float sum, float shift) {
    return rounded(LOGARITHM ? below - shift : exponential(below) / sum);
}

void vectors(uint row) {
    uint start = row * (size / 4u);
    uint end = start + size / 4u;
    float most = -INFINITE;
    for (uint i = start; i < end; i++) {
        most = max(most, largest(source_vectors[i]));
    }
    // In short parts: a long sum loses small terms.
    vec4 sum = vec4(0.0);
    for (uint part = start; part < end; part += 16u) {
        vec4 here = vec4(0.0);
        for (uint i = part; i < min(part + 16u, end); i++) {
            here += exponentials(source_vectors[i] - most);
        }
        sum += here;
    }
    float total = (sum.x + sum.y) + (sum.z + sum.w);
    float shift = LOGARITHM ? logarithm(total) : 0.0;
    for (uint i = start; i < end; i++) {
        vec4 below = source_vectors[i] - most;
        target_vectors[i] = vec4(
            result(below.x, total, shift),
            result(below.y, total, shift),
            result(below.z, total, shift),
            result(below.w, total, shift)
        );
    }
}

void elements(uint row) {
    uint start = row / inner * inner * size + row % inner;
    uint seen = CAUSAL ? min(size, first_position + row % positions + 1u) : size;
    float most = -INFINITE;
    for (uint i = 0u; i < seen; i++) {
        most = max(most, source[start + i * inner]);
    }
    float total = 0.0;
    for (uint part = 0u; part < seen; part += 32u) {
        float here = 0.0;
        for (uint i = part; i < min(part + 32u, seen); i++) {
            here += exponential(source[start + i * inner] - most);
        }
        total += here;
    }
    float shift = LOGARITHM ? logarithm(total) : 0.0;
    for (uint i = 0u; i < seen; i++) {
        target[start + i * inner] = result(source[start + i * inner] - most, total, shift);
    }
    for (uint i = seen; i < size; i++) {
        target[start + i * inner] = 0.0;
    }
}

void main() {
    uint row = item();
    if (row >= rows) {
        return;
    }
    if (VECTORS) {
        vectors(row);
    } else {
        elements(row);
    }
}
