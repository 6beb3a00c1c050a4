// Written by `make shaders` from numbers.py. Do not edit.
// Sizes that shaders are written for.
#define LIMIT_GROUP 64u
#define LIMIT_AXES 8u
#define LIMIT_WHERE_AXES 7u
// Functions of one tensor (unary.comp); comparisons are those with a number.
#define UNARY_ABS 0u
#define UNARY_COS 1u
#define UNARY_EXP 2u
#define UNARY_GELU 3u
#define UNARY_GELU_TANH 4u
#define UNARY_HARDSHRINK 5u
#define UNARY_HARDSWISH 6u
#define UNARY_CLAMP 7u
#define UNARY_NEG 8u
#define UNARY_RELU 9u
#define UNARY_SIGMOID 10u
#define UNARY_SIN 11u
#define UNARY_SQRT 12u
#define UNARY_RSQRT 13u
#define UNARY_TANH 14u
#define UNARY_ROUND 15u
#define UNARY_LEAKY_RELU 16u
#define UNARY_LOG10 17u
#define UNARY_POWER 18u
#define UNARY_EQ 20u
#define UNARY_NE 21u
#define UNARY_LT 22u
#define UNARY_LE 23u
#define UNARY_GT 24u
#define UNARY_GE 25u
#define UNARY_IS_ZERO 26u
#define UNARY_COMPLEMENT 27u
#define UNARY_TO_FLOAT 30u
#define UNARY_TO_INT 31u
#define UNARY_TO_BOOL 32u
// Functions of two tensors (binary.comp); comparisons have truths as results, those from AND on take integers.
#define BINARY_ADD 0u
#define BINARY_SUB 1u
#define BINARY_MUL 2u
#define BINARY_DIV 3u
#define BINARY_FLOOR_DIV 4u
#define BINARY_TRUNC_DIV 5u
#define BINARY_POW 6u
#define BINARY_MIN 7u
#define BINARY_MAX 8u
#define BINARY_EQ 10u
#define BINARY_NE 11u
#define BINARY_LT 12u
#define BINARY_LE 13u
#define BINARY_GT 14u
#define BINARY_GE 15u
#define BINARY_AND 20u
#define BINARY_OR 21u
#define BINARY_XOR 22u
#define BINARY_BOTH 23u
#define BINARY_EITHER 24u
// Reductions (reduce.comp); the last two are sums of what is compared with another tensor.
#define REDUCE_SUM 0u
#define REDUCE_MAX 1u
#define REDUCE_MIN 2u
#define REDUCE_SUM_EXPONENTIALS 3u
#define REDUCE_SUM_SQUARES 4u
// Functions of a sum (reduce.comp): nothing, a quotient, or 1 / sqrt(quotient + epsilon).
#define FINISH_NOTHING 0u
#define FINISH_QUOTIENT 1u
#define FINISH_INVERSE_ROOT 2u
// Operations with a scale and a zero point (affine.comp).
#define AFFINE_QUANTIZE 0u
#define AFFINE_DEQUANTIZE 1u
#define AFFINE_BOTH 2u
// Mappings of a range of numbers to a scale and a zero point (qparams.comp).
#define MAPPING_ASYMMETRIC 0u
#define MAPPING_SYMMETRIC 1u
#define MAPPING_SYMMETRIC_TO_THE_ENDS 2u
// Poolings (pool.comp): the maximum and where it is, the average with padding that counts.
#define POOL_MAXIMUM 0u
#define POOL_POSITION 1u
#define POOL_AVERAGE 2u
#define POOL_PADDED_AVERAGE 3u
// Ways to sample (resize.comp): with CORNERS the middles of the corners stay where they are.
#define RESIZE_NEAREST 0u
#define RESIZE_BILINEAR 1u
#define RESIZE_BILINEAR_CORNERS 2u
// Pairs of elements that are rotated together, and the layout of their angles (rotary.comp).
#define ROTARY_PAIRS 0u
#define ROTARY_INTERLEAVED 1u
#define ROTARY_HALVES 2u
