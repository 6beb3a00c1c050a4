"""Products with constant matrices, and of computed ones."""

from __future__ import annotations

import math

import torch

from delegatekit_api import Call, Operand, TensorSpec
from delegatekit_api.operators import RuntimeTensor
from delegatekit_toolkit.support import row

from ..ir.images import Filters, convolved
from ..ir.numbers import Scale, fixed_point
from ..ir.program import CHANNELS_LAST, ProgramBuilder
from .common import Rows, bias_of, constant_weight, scales_of, weight_of

# -- constraints -----------------------------------------------------------------------------------------------------


def plain_product(call: Call) -> str | None:
    """alpha and beta are 1; the bias has a number for each column."""
    alpha, beta = call["alpha"], call["beta"]
    if (alpha, beta) != (1, 1):
        return f"alpha and beta are {alpha} and {beta}: only 1 is taken"
    bias = call["self"].shape
    return None if math.prod(bias) == call.result.shape[-1] else f"a bias of {bias}"


def same_batches(call: Call) -> str | None:
    """Both are matrices, or batches of as many."""
    first, second = call.operands if len(call.operands) == 2 else call.operands * 2
    if min(first.rank, second.rank) < 2:
        return f"a vector: operands are {first.shape} and {second.shape}"
    before = first.shape[:-2], second.shape[:-2]
    return None if before[0] == before[1] else f"batches of {before[0]} and {before[1]}"


# -- lowerings -------------------------------------------------------------------------------------------------------


def _linear(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    return _rows(b, call["input"], call["weight"], weight_of(call["weight"]), call["bias"], result)


def _addmm(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    """The same with a weight that is stored transposed, (I, O)."""
    return _rows(b, call["mat1"], call["mat2"], weight_of(call["mat2"]).T, call["self"], result)


def _rows(
    b: ProgramBuilder, operand: Operand, weight: Operand, data: torch.Tensor, bias: Operand | None, result: Scale
) -> RuntimeTensor:
    """(..., I) @ data (O, I)^T + bias (O)."""
    before, outputs = b.scale(operand), data.shape[0]
    scales = scales_of(weight, outputs)
    x = b.as_written(b.integers(operand))
    *outer, inputs = x.spec.shape
    sums = bias_of(b, bias, [before.scale * scale for scale in scales])
    if len(set(scales)) > 1:  # A convolution has a scale for each channel: rows are pixels.
        image = _image(b, x, (1, inputs, 1, math.prod(outer)))
        filters = Filters(data.reshape(outputs, inputs, 1, 1), scales, sums)
        made = convolved(b, image, before, filters, (1, outputs, 1, math.prod(outer)), result)
        return b.calls.view(made, _spec(x, (*outer, outputs)))
    kernel_sum = None
    if b.extension == "mve":  # The kernel for vectors reads these sums, the others the bias.
        kernel_sum = data.to(torch.int32).sum(1, dtype=torch.int32)[None] * -before.zero_point
        kernel_sum, sums = kernel_sum if sums is None else kernel_sum + sums, None
    multiplier, shift = fixed_point(before.scale * scales[0] / result.scale)
    return b.call(
        "quantized_linear",
        *(x, b.calls.constant(data)),
        *(None if item is None else b.calls.constant(item) for item in (sums, kernel_sum)),
        *(-before.zero_point, 0, result.zero_point, (multiplier,), (shift,), result.high, result.low),
        shape=(*outer, outputs),
    )


def _spec(tensor: RuntimeTensor, shape: tuple[int, ...], order: tuple[int, ...] = ()) -> TensorSpec:
    return TensorSpec(tensor.spec.dtype, shape, dim_order=order)


def _image(b: ProgramBuilder, tensor: RuntimeTensor, shape: tuple[int, ...]) -> RuntimeTensor:
    """Rows (R, I) as an image (1, I, 1, R) with the channels last: the same bytes."""
    return b.calls.view(tensor, _spec(tensor, shape, CHANNELS_LAST))


def _product(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    first, second = (call[name] for name in (("self", "mat2") if call.has("mat2") else ("self", "other")))
    left, right = b.scale(first), b.scale(second)
    x, y = b.integers(first), b.integers(second)
    *_, rows, inner = x.spec.shape
    columns, batch = y.spec.shape[-1], math.prod(x.spec.shape[:-2])
    x, y = b.reshaped(x, (batch, rows, inner)), b.reshaped(y, (batch, inner, columns))
    if y.data is not None:
        turned = b.calls.constant(y.data.transpose(1, 2))
    else:
        turned = b.call("transpose", y, (0, 2, 1), shape=(batch, columns, inner))
    factor = fixed_point(left.scale * right.scale / result.scale)
    made = b.call(
        "quantized_batch_matmul",
        *(x, -left.zero_point, turned, -right.zero_point, result.zero_point, *factor),
        b.calls.scratch(b.sizes.product(inner, columns)),
        shape=(batch, rows, columns),
    )
    return b.bounded(b.reshaped(made, call.result.shape), result)


ROWS: Rows = (
    row("linear.default", _linear, constant_weight("weight", "bias"), keep=True, constants=("weight", "bias")),
    row(
        "addmm.default",
        _addmm,
        constant_weight("mat2", "self", channel_axis=1),
        plain_product,
        keep=True,
        constants=("mat2", "self"),
    ),
    row("bmm.default mm.default", _product, same_batches),
    row("matmul.default", _product, same_batches, keep=True),
)
