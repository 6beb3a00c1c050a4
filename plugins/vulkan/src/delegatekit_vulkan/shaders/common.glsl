// What all shaders share. Words of a tensor are float32 or int32; see tape.py.
#include "numbers.glsl"

layout(local_size_x = LIMIT_GROUP) in;

// Whether what is stored is rounded to float16.
layout(constant_id = 0) const bool HALF = false;

// The number of this invocation; groups beyond what fits along x continue along y.
uint item() {
    return gl_GlobalInvocationID.y * (gl_NumWorkGroups.x * LIMIT_GROUP) + gl_GlobalInvocationID.x;
}

float rounded(float value) {
    // packHalf2x16 rounds to nearest even on all drivers that we know; values beyond float16 become infinite.
    return HALF ? unpackHalf2x16(packHalf2x16(vec2(value, 0.0))).x : value;
}
