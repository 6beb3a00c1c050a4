// What all shaders share. Words of a tensor are float32 or int32; see tape.py.

layout(local_size_x = 64) in;

// Whether what is stored is rounded to float16.
layout(constant_id = 0) const bool HALF = false;

// The number of this invocation; groups beyond what fits along x continue along y.
uint item() {
    return gl_GlobalInvocationID.y * (gl_NumWorkGroups.x * 64u) + gl_GlobalInvocationID.x;
}

float rounded(float value) {
    // packHalf2x16 rounds to nearest even on all drivers that we know; values beyond float16 become infinite.
    return HALF ? unpackHalf2x16(packHalf2x16(vec2(value, 0.0))).x : value;
}

// Axes of a tensor that shaders with strides can go over, after axes that lie together were joined.
#define AXES 8
