#version 450
//! Products of matrices, up to 8 rows and 8 columns in each invocation; alpha * product + beta * bias. The right matrix has
//! numbers, or integers of 8 or 4 bits with scales for groups of rows; beside integers the bias is one row, and beta is 1.
//! variants: float int8 int4
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint batches;
    uint rows;
    // Of the result, and from the first that this dispatch computes, how many.
    uint columns;
    uint first_column;
    uint these_columns;
    uint inner;
    // Elements from one matrix to the next.
    uint left_step;
    uint right_step;
    // Elements from one row to the next.
    uint left_row;
    uint right_row;
    uint bias_step;
    uint bias_row;
    uint bias_column;
    float alpha;
    float beta;
#ifndef FLOAT
    // Fours of rows with the same scales.
    uint group;
#endif
};
// Rows that an invocation computes.
layout(constant_id = 1) const uint ROWS = 8u;
// Whether rows of the left matrix, of the right one and of the result are whole vectors of four.
layout(constant_id = 2) const bool LEFT_VECTORS = false;
layout(constant_id = 3) const bool RIGHT_VECTORS = false;
layout(constant_id = 4) const bool TARGET_VECTORS = false;
layout(constant_id = 5) const bool BIAS = false;

layout(std430, binding = 0) readonly buffer Left { float left[]; };
layout(std430, binding = 0) readonly buffer LeftVectors { vec4 left_vectors[]; };
#ifdef FLOAT
#define BIAS_BINDING 2
#define TO_BINDING 3
layout(std430, binding = 1) readonly buffer Right { float right[]; };
layout(std430, binding = 1) readonly buffer RightVectors { vec4 right_vectors[]; };
layout(std430, binding = BIAS_BINDING) readonly buffer Bias { float bias[]; };
#else
#define BIAS_BINDING 3
#define TO_BINDING 4
// For each four rows and eight columns: a row after the other. Bytes are in the order of columns; halves of bytes, with 8
// added, are columns 0 to 3 in the lower halves and 4 to 7 in the upper ones.
layout(std430, binding = 1) readonly buffer Right { uvec4 right[]; };
// For each group of rows, of each column.
layout(std430, binding = 2) readonly buffer Scales { vec4 scales[]; };
layout(std430, binding = BIAS_BINDING) readonly buffer Bias { vec4 bias[]; };
#endif
layout(std430, binding = TO_BINDING) writeonly buffer To { float target[]; };
layout(std430, binding = TO_BINDING) writeonly buffer ToVectors { vec4 target_vectors[]; };

// Software drivers compute fastest with many named accumulators and few loads; rows beyond ROWS vanish.
#define EACH_ROW(DO) \
    DO(A, 0u) \
    if (ROWS > 1u) { DO(B, 1u) } \
    if (ROWS > 2u) { DO(C, 2u) DO(D, 3u) } \
    if (ROWS > 4u) { DO(E, 4u) DO(F, 5u) DO(G, 6u) DO(H, 7u) }
#define DECLARE(R, number) vec4 low##R = vec4(0.0); vec4 high##R = vec4(0.0); vec4 left##R = vec4(0.0); \
    uint from##R = batch * left_step + min(row + number, rows - 1u) * left_row;
#define LOAD_VECTOR(R, number) left##R = left_vectors[from##R / 4u + k];
#define LOAD(R, number) left##R.x = left[from##R + k];
#define ADD_X(R, number) low##R += left##R.x * first; high##R += left##R.x * second;
#define ADD_Y(R, number) low##R += left##R.y * first; high##R += left##R.y * second;
#define ADD_Z(R, number) low##R += left##R.z * first; high##R += left##R.z * second;
#define ADD_W(R, number) low##R += left##R.w * first; high##R += left##R.w * second;
#define STORE(R, number) if (row + number < rows) { \
        store(batch, row + number, column, low##R); \
        if (column + 4u < these_columns) { store(batch, row + number, column + 4u, high##R); } \
    }

#ifdef FLOAT
#define STEP(ADD) \
    first = right_part(place, column); \
    second = right_part(place, beside); \
    EACH_ROW(ADD) \
    place += right_row;

vec4 right_part(uint place, uint column) {
    if (RIGHT_VECTORS) {
        return right_vectors[(place + column) / 4u];
    }
    uint last = right_row - 1u;
    return vec4(
        right[place + column],
        right[place + min(column + 1u, last)],
        right[place + min(column + 2u, last)],
        right[place + min(column + 3u, last)]
    );
}
#else
#define LOAD_FOUR(R, number) left##R = LEFT_VECTORS ? left_vectors[from##R / 4u + k] : left_part(from##R, k * 4u);
#define STEP(ADD, LOW, HIGH) \
    first = low_scale * LOW; \
    second = high_scale * HIGH; \
    EACH_ROW(ADD)

// Four elements of a row, 0 after its end.
vec4 left_part(uint from, uint k) {
    uvec4 at = k + uvec4(0u, 1u, 2u, 3u);
    uvec4 found = from + min(at, inner - 1u);
    return mix(vec4(0.0), vec4(left[found.x], left[found.y], left[found.z], left[found.w]), lessThan(at, uvec4(inner)));
}

vec4 bytes_of(uint word) {
    return vec4(ivec4(word << 24u, word << 16u, word << 8u, word) >> 24);
}

vec4 nibbles_of(uint word) {
    uint low = word & 0x0F0F0F0Fu;
    return vec4(uvec4(low, low >> 8u, low >> 16u, low >> 24u) & 255u) - 8.0;
}
#endif

void store(uint batch, uint row, uint column, vec4 sums) {
    uint place = (batch * rows + row) * columns + first_column + column;
    sums *= alpha;
    if (BIAS) {
#ifdef FLOAT
        uint from = batch * bias_step + row * bias_row;
        uint at = first_column + column;
        uint last = first_column + these_columns - 1u;
        sums += beta * vec4(
            bias[from + at * bias_column],
            bias[from + min(at + 1u, last) * bias_column],
            bias[from + min(at + 2u, last) * bias_column],
            bias[from + min(at + 3u, last) * bias_column]
        );
#else
        sums += bias[(first_column + column) / 4u];
#endif
    }
    sums = vec4(rounded(sums.x), rounded(sums.y), rounded(sums.z), rounded(sums.w));
    if (TARGET_VECTORS) {
        target_vectors[place / 4u] = sums;
        return;
    }
    target[place] = sums.x;
    if (column + 1u < these_columns) {
        target[place + 1u] = sums.y;
    }
    if (column + 2u < these_columns) {
        target[place + 2u] = sums.z;
    }
    if (column + 3u < these_columns) {
        target[place + 3u] = sums.w;
    }
}

void main() {
    uint across = (these_columns + 7u) / 8u;
    uint down = (rows + ROWS - 1u) / ROWS;
    uint index = item();
    if (index >= across * down * batches) {
        return;
    }
    uint column = index % across * 8u;
    uint row = index / across % down * ROWS;
    uint batch = index / across / down;
    DECLARE(A, 0u) DECLARE(B, 1u) DECLARE(C, 2u) DECLARE(D, 3u)
    DECLARE(E, 4u) DECLARE(F, 5u) DECLARE(G, 6u) DECLARE(H, 7u)
    vec4 first;
    vec4 second;
#ifdef FLOAT
    // Where there are no second four columns, the first ones are read again.
    uint beside = column + 4u < these_columns ? column + 4u : column;
    uint place = batch * right_step;
    uint vectors = LEFT_VECTORS ? inner / 4u : 0u;
    for (uint k = 0u; k < vectors; k++) {
        EACH_ROW(LOAD_VECTOR)
        STEP(ADD_X)
        STEP(ADD_Y)
        STEP(ADD_Z)
        STEP(ADD_W)
    }
    for (uint k = vectors * 4u; k < inner; k++) {
        EACH_ROW(LOAD)
        STEP(ADD_X)
    }
#else
    uint blocks = right_row / 8u;
    uint fours = (inner + 3u) / 4u;
    for (uint start = 0u; start < fours; start += group) {
        uint at = (start / group * right_row + column) / 4u;
        vec4 low_scale = scales[at];
        vec4 high_scale = scales[at + 1u];
        uint end = min(start + group, fours);
        for (uint k = start; k < end; k++) {
            EACH_ROW(LOAD_FOUR)
            uint place = k * blocks + column / 8u;
#ifdef INT8
            uvec4 words = right[place * 2u];
            STEP(ADD_X, bytes_of(words.x), bytes_of(words.y))
            STEP(ADD_Y, bytes_of(words.z), bytes_of(words.w))
            words = right[place * 2u + 1u];
            STEP(ADD_Z, bytes_of(words.x), bytes_of(words.y))
            STEP(ADD_W, bytes_of(words.z), bytes_of(words.w))
#else
            uvec4 words = right[place];
            STEP(ADD_X, nibbles_of(words.x), nibbles_of(words.x >> 4u))
            STEP(ADD_Y, nibbles_of(words.y), nibbles_of(words.y >> 4u))
            STEP(ADD_Z, nibbles_of(words.z), nibbles_of(words.z >> 4u))
            STEP(ADD_W, nibbles_of(words.w), nibbles_of(words.w >> 4u))
#endif
        }
    }
#endif
    EACH_ROW(STORE)
}
