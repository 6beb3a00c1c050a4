#version 450
//! Pixels of images at places that a grid names, between the four around; the border goes on outside.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    int channels;
    ivec2 in_size; // (height, width)
    int out_pixels; // of a plane
};
layout(std430, binding = 0) readonly buffer Input { float source[]; };
layout(std430, binding = 1) readonly buffer Grid { float grid[]; };
layout(std430, binding = 2) writeonly buffer Output { float target[]; };

float pixel(int start, ivec2 at) {
    return source[start + at.x * in_size.y + at.y];
}

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    int number = int(index % uint(out_pixels));
    int plane = int(index / uint(out_pixels));
    int start = plane * in_size.x * in_size.y;
    int place = (plane / channels * out_pixels + number) * 2;
    ivec2 last = in_size - 1;
    // -1 and 1 are the middles of the corners. NaN is taken for the first pixel, as PyTorch does.
    precise vec2 from = (vec2(grid[place + 1], grid[place]) + 1.0) * (vec2(last) / 2.0);
    from = mix(clamp(from, vec2(0.0), vec2(last)), vec2(0.0), isnan(from));
    ivec2 at = min(ivec2(from), last);
    ivec2 next = min(at + 1, last);
    vec2 after = from - vec2(at);
    vec2 before = 1.0 - after;
    // Neighbors outside count as 0.
    bool right = at.y < last.y;
    bool below = at.x < last.x;
    float sum = before.x * before.y * pixel(start, at);
    sum += right ? before.x * after.y * pixel(start, ivec2(at.x, next.y)) : 0.0;
    sum += below ? after.x * before.y * pixel(start, ivec2(next.x, at.y)) : 0.0;
    sum += right && below ? after.x * after.y * pixel(start, next) : 0.0;
    target[index] = rounded(sum);
}
