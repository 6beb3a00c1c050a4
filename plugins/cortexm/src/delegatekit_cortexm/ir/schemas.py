"""The operators of ExecuTorch 1.5's library for Cortex-M that programs call: their schemas (backends/cortex_m/ops)."""

from __future__ import annotations

from typing import Final

_CONVOLUTION: Final = "Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
_OFFSETS: Final = (
    "int input_offset, int output_offset, Tensor requantize_multipliers, Tensor requantize_shifts, "
    "int activation_min, int activation_max, Tensor scratch"
)
_QUANTIZE: Final = "Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype"
_POOL: Final = "Tensor input, int[] kernel_size, int[] stride, int[] padding, "

#: Operator -> its arguments, the result left out.
_ARGUMENTS: Final = {
    "quantize_per_tensor": _QUANTIZE,
    "dequantize_per_tensor": _QUANTIZE,
    "quantized_add": "Tensor self, int self_zero_point, int self_multiplier, int self_shift, "
    "Tensor other, int other_zero_point, int other_multiplier, int other_shift, int output_zero_point, "
    "int output_multiplier, int output_shift, int activation_min, int activation_max",
    "quantized_mul": "Tensor self, int self_zero_point, Tensor other, int other_zero_point, int output_zero_point, "
    "int output_multiplier, int output_shift",
    "quantized_div": "Tensor self, int self_zero_point, Tensor other, int other_zero_point, int output_zero_point, "
    "float output_scale",
    "quantized_activation": "Tensor input, Tensor lut",
    "minimum": "Tensor self, Tensor other",
    "maximum": "Tensor self, Tensor other",
    "quantized_linear": "Tensor input, Tensor weights, Tensor? bias, Tensor? kernel_sum, int input_offset, "
    "int filter_offset, int output_offset, int[] requantize_multipliers, int[] requantize_shifts, "
    "int activation_max, int activation_min",
    "softmax": "Tensor input, int dim, int input_zero_point, int output_zero_point, int input_multiplier, "
    "int input_shift, int diff_min",
    "transpose": "Tensor input, int[] perm",
    "pad": "Tensor input, int[] pre_pad, int[] post_pad, int pad_value",
    "quantized_conv2d": f"{_CONVOLUTION}int[] dilation, {_OFFSETS}",
    "quantized_depthwise_conv2d": f"{_CONVOLUTION}int[] dilation, int depth_multiplier, {_OFFSETS}",
    "quantized_transpose_conv2d": f"{_CONVOLUTION}int[] output_padding, int[] dilation, {_OFFSETS}, "
    "Tensor output_scratch",
    "quantized_avg_pool2d": f"{_POOL}bool ceil_mode, int zero_point, int multiplier, int shift, Tensor scratch",
    "quantized_max_pool2d": f"{_POOL}int[] dilation, bool ceil_mode, int input_zero_point, int output_zero_point, "
    "int activation_min, int activation_max",
    "quantized_batch_matmul": "Tensor lhs, int lhs_zero_point, Tensor rhs_transposed, int rhs_zero_point, "
    "int output_zero_point, int output_multiplier, int output_shift, Tensor scratch",
}

#: The answer of the hook `runtime_operators`.
SCHEMAS: Final = tuple(
    f"cortex_m::{name}.out({arguments}, *, Tensor(a!) out) -> Tensor(a!)" for name, arguments in _ARGUMENTS.items()
)
