#version 450
//! Convolutions of each channel by itself: 2 rows of 8 pixels in an invocation, which share what they read.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    int row_blocks;
    int column_blocks;
    int channels; // of the result
    int multiplier; // channels of the result for each of the input
    int kernel_height;
    // All pairs are (height, width).
    ivec2 in_size;
    ivec2 out_size;
    ivec2 padding;
    float low;
    float high;
};
layout(constant_id = 1) const bool CLAMP = false;
layout(constant_id = 2) const bool BIAS = false;
layout(constant_id = 3) const uint WIDTH = 3u; // of the kernel, at most 7
layout(constant_id = 4) const int STEP = 1; // 1 or 2, down and across
layout(constant_id = 5) const bool ALIGNED = false; // whether a row of the result is whole vectors

layout(std430, binding = 0) readonly buffer Input { float source[]; };
layout(std430, binding = 1) readonly buffer Weight { vec4 weight[]; };
layout(std430, binding = 2) readonly buffer Bias { float bias[]; };
// Both are the same memory; a pipeline uses one of them.
layout(std430, binding = 3) writeonly buffer Output { float target[]; };
layout(std430, binding = 3) writeonly buffer Vectors { vec4 vectors[]; };

#include "convolution.glsl"

// Vectors of a row of the kernel.
const uint QUADS = WIDTH > 4u ? 2u : 1u;
// Numbers of a row of the input that 8 pixels need.
const uint SPAN = 7u * uint(STEP) + WIDTH;

#define LOAD(N) \
    float r##N = 0.0; \
    if (SPAN > uint(N)) { \
        int at = left + N; \
        r##N = source[row + clamp(at, 0, in_size.y - 1)]; \
        r##N = uint(at) < uint(in_size.y) ? r##N : 0.0; \
    }
#define TERM(K, FROM, A, B, C, D, E, F, G, H) \
    if (WIDTH > K) { \
        u += FROM * vec4(A, B, C, D); \
        v += FROM * vec4(E, F, G, H); \
    }
#define SUM(U, V, FIRST, SECOND) { \
    vec4 u = U; \
    vec4 v = V; \
    if (STEP == 1) { \
        TERM(0u, FIRST.x, r0, r1, r2, r3, r4, r5, r6, r7) \
        TERM(1u, FIRST.y, r1, r2, r3, r4, r5, r6, r7, r8) \
        TERM(2u, FIRST.z, r2, r3, r4, r5, r6, r7, r8, r9) \
        TERM(3u, FIRST.w, r3, r4, r5, r6, r7, r8, r9, r10) \
        TERM(4u, SECOND.x, r4, r5, r6, r7, r8, r9, r10, r11) \
        TERM(5u, SECOND.y, r5, r6, r7, r8, r9, r10, r11, r12) \
        TERM(6u, SECOND.z, r6, r7, r8, r9, r10, r11, r12, r13) \
    } else { \
        TERM(0u, FIRST.x, r0, r2, r4, r6, r8, r10, r12, r14) \
        TERM(1u, FIRST.y, r1, r3, r5, r7, r9, r11, r13, r15) \
        TERM(2u, FIRST.z, r2, r4, r6, r8, r10, r12, r14, r16) \
        TERM(3u, FIRST.w, r3, r5, r7, r9, r11, r13, r15, r17) \
        TERM(4u, SECOND.x, r4, r6, r8, r10, r12, r14, r16, r18) \
        TERM(5u, SECOND.y, r5, r7, r9, r11, r13, r15, r17, r19) \
        TERM(6u, SECOND.z, r6, r8, r10, r12, r14, r16, r18, r20) \
    } \
    U = u; \
    V = v; \
}
#define ONE(N, VALUE) if (x + N < out_size.y) { target[to + N] = VALUE; }

void put(int y, int x, int base, vec4 u, vec4 v) {
    if (y >= out_size.x) {
        return;
    }
    int to = base + y * out_size.y + x;
    u = stored(u, low, high);
    v = stored(v, low, high);
    if (ALIGNED) {
        vectors[to / 4] = u;
        if (x + 4 < out_size.y) {
            vectors[to / 4 + 1] = v;
        }
        return;
    }
    ONE(0, u.x) ONE(1, u.y) ONE(2, u.z) ONE(3, u.w)
    ONE(4, v.x) ONE(5, v.y) ONE(6, v.z) ONE(7, v.w)
}

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    int x = int(index % uint(column_blocks)) * 8;
    int y = int(index / uint(column_blocks) % uint(row_blocks)) * 2;
    // The channels of all images in turn.
    int plane = int(index / uint(column_blocks) / uint(row_blocks));
    int channel = plane % channels;
    int left = x * STEP - padding.y;
    int first_row = y * STEP - padding.x;
    int start = plane / multiplier * in_size.x * in_size.y;

    float begin = BIAS ? bias[channel] : 0.0;
    vec4 upper0 = vec4(begin);
    vec4 upper1 = upper0;
    vec4 lower0 = upper0;
    vec4 lower1 = upper0;
    // The kernel's row for the upper row of the result, and the two before it: one of them is for the lower row.
    vec4 now0 = vec4(0.0), now1 = now0, before0 = now0, before1 = now0, last0 = now0, last1 = now0;
    uint taken = uint(channel * kernel_height) * QUADS;
    for (int k = 0; k < kernel_height + STEP; k++) {
        last0 = before0;
        last1 = before1;
        before0 = now0;
        before1 = now1;
        if (k < kernel_height) {
            now0 = weight[taken];
            now1 = QUADS == 2u ? weight[taken + 1u] : now1;
            taken += QUADS;
        }
        if (uint(first_row + k) < uint(in_size.x)) {
            int row = start + (first_row + k) * in_size.y;
            LOAD(0) LOAD(1) LOAD(2) LOAD(3) LOAD(4) LOAD(5) LOAD(6) LOAD(7) LOAD(8) LOAD(9) LOAD(10)
            LOAD(11) LOAD(12) LOAD(13) LOAD(14) LOAD(15) LOAD(16) LOAD(17) LOAD(18) LOAD(19) LOAD(20)
            // Rows that a pixel does not reach are left out, not multiplied by 0: they may be infinite.
            if (k < kernel_height) {
                SUM(upper0, upper1, now0, now1)
            }
            if (k >= STEP) {
                vec4 under0 = STEP == 1 ? before0 : last0;
                vec4 under1 = STEP == 1 ? before1 : last1;
                SUM(lower0, lower1, under0, under1)
            }
        }
    }
    int base = plane * out_size.x * out_size.y;
    put(y, x, base, upper0, upper1);
    put(y + 1, x, base, lower0, lower1);
}
