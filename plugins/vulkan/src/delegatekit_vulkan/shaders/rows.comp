#version 450
//! Slices of a tensor at the indices of a list: embedding, index_select, indexing by a tensor.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uint count;
    // Elements along the axis that is indexed, elements of a slice, and indices.
    uint size;
    uint inner;
    uint indices;
    // Its number, from 1.
    uint call;
};
// Whether an invocation moves four elements that lie together; then count and inner count these.
layout(constant_id = 1) const bool WIDE = false;
// Whether indices below 0 count from the end.
layout(constant_id = 2) const bool NEGATIVE = false;

layout(std430, binding = 0) readonly buffer From { uint source[]; };
layout(std430, binding = 1) readonly buffer Index { int index_of[]; };
layout(std430, binding = 2) writeonly buffer To { uint target[]; };
// The last call that found an index out of range.
layout(std430, binding = 3) buffer Fault { uint fault; };
layout(std430, binding = 0) readonly buffer From4 { uvec4 source4[]; };
layout(std430, binding = 2) writeonly buffer To4 { uvec4 target4[]; };

uint stored(uint word) {
    return HALF ? floatBitsToUint(rounded(uintBitsToFloat(word))) : word;
}

void main() {
    uint place = item();
    if (place >= count) {
        return;
    }
    uint within = place % inner;
    uint row = place / inner;
    int found = index_of[row % indices];
    if (found < (NEGATIVE ? -int(size) : 0) || found >= int(size)) {
        atomicMax(fault, call);
    }
    found += found < 0 ? int(size) : 0;
    // An index out of range must not read outside.
    uint from = (row / indices * size + uint(clamp(found, 0, int(size) - 1))) * inner + within;
    if (WIDE) {
        uvec4 words = source4[from];
        target4[place] = uvec4(stored(words.x), stored(words.y), stored(words.z), stored(words.w));
    } else {
        target[place] = stored(source[from]);
    }
}
