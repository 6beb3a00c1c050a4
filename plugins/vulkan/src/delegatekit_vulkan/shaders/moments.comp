#version 450
//! The mean of each row, and 1 / sqrt(variance + epsilon): in two passes, so that a large mean costs no digits.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint rows;
    uint size;
    float epsilon;
};
// Whether rows are whole vectors of four.
layout(constant_id = 1) const bool VECTORS = false;
// Whether the mean is taken to be 0.
layout(constant_id = 2) const bool UNCENTRED = false;

layout(std430, binding = 0) readonly buffer From { float source[]; };
layout(std430, binding = 0) readonly buffer FromVectors { vec4 source_vectors[]; };
layout(std430, binding = 1) writeonly buffer Means { float means[]; };
layout(std430, binding = 2) writeonly buffer Scales { float scales[]; };

// Elements, or their squares, less a number; in short parts, since a long sum loses small terms.
float total(uint row, float mean, bool squared) {
    float sum = 0.0;
    if (VECTORS) {
        uint start = row * (size / 4u);
        uint end = start + size / 4u;
        for (uint part = start; part < end; part += 16u) {
            vec4 here = vec4(0.0);
            for (uint i = part; i < min(part + 16u, end); i++) {
                vec4 x = source_vectors[i] - mean;
                here += squared ? x * x : x;
            }
            sum += (here.x + here.y) + (here.z + here.w);
        }
    } else {
        uint start = row * size;
        for (uint part = start; part < start + size; part += 32u) {
            float here = 0.0;
            for (uint i = part; i < min(part + 32u, start + size); i++) {
                float x = source[i] - mean;
                here += squared ? x * x : x;
            }
            sum += here;
        }
    }
    return sum;
}

void main() {
    uint row = item();
    if (row >= rows) {
        return;
    }
    float count = float(size);
    float mean = 0.0;
    if (!UNCENTRED) {
        // Less the first element: a large mean would cost the sum its digits.
        float first = source[row * size];
        mean = first + total(row, first, false) / count;
    }
    float variance = total(row, mean, true) / count;
    means[row] = mean;
    scales[row] = 1.0 / sqrt(variance + epsilon);
}
