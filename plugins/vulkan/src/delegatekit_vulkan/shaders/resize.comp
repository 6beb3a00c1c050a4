#version 450
//! Images in other sizes: the nearest pixel, or between the four around.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    uint unused;
    // All pairs are (height, width).
    ivec2 in_size;
    ivec2 out_size;
    vec2 scale; // pixels of the input for one of the result
};
layout(constant_id = 1) const uint KIND = 0u;

layout(std430, binding = 0) readonly buffer Input { float source[]; };
layout(std430, binding = 1) writeonly buffer Output { float target[]; };

void main() {
    uint index = item();
    if (index >= count) {
        return;
    }
    uint area = uint(out_size.x * out_size.y);
    int number = int(index % area);
    int start = int(index / area) * in_size.x * in_size.y;
    vec2 place = vec2(number / out_size.y, number % out_size.y);
    ivec2 last = in_size - 1;
    precise vec2 from = place * scale;
    if (KIND == RESIZE_NEAREST) {
        ivec2 at = min(ivec2(floor(from)), last);
        target[index] = source[start + at.x * in_size.y + at.y];
        return;
    }
    if (KIND == RESIZE_BILINEAR) {
        from = scale * (place + 0.5);
        from = max(from - 0.5, 0.0);
    }
    ivec2 at = min(ivec2(from), last);
    ivec2 next = min(at + 1, last);
    vec2 after = clamp(from - vec2(at), 0.0, 1.0);
    vec2 before = 1.0 - after;
    int upper = start + at.x * in_size.y;
    int lower = start + next.x * in_size.y;
    float top = before.y * source[upper + at.y] + after.y * source[upper + next.y];
    float bottom = before.y * source[lower + at.y] + after.y * source[lower + next.y];
    target[index] = rounded(before.x * top + after.x * bottom);
}
