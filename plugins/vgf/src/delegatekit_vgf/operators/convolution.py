"""Convolutions over one, two or three axes: with the channels last, and with groups one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import per_axis
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import Conv2d, Conv3d, DepthwiseConv2d, DType, Operator, Tensor, TransposeConv2d

from ..ir.builder import Lower, Value, VgfBuilder
from .common import REAL, tensor
from .windows import Image, beyond_level, image_of, result_of, trimmed

#: Sums are float32, also of float16.
_SUMS: Final = DType.FP32


def _convolution(b: VgfBuilder, call: Call) -> Value:
    image = image_of(b, tensor(b, call, "input"), call["weight"].rank - 2)
    weight, bias = tensor(b, call, "weight"), call["bias"]
    terms = b.graph.constant([0], image.tensor.dtype) if bias is None else b.contiguous(b.value(bias))
    made = (_transposed if call["transposed"] else _forward)(b, call, image, weight, terms)
    return result_of(b, made, call.result.shape)


def _forward(b: VgfBuilder, call: Call, image: Image, weight: Value, bias: Tensor) -> Tensor:
    strides, gaps, before = (
        image.spread(call[name], at) for name, at in (("stride", 1), ("dilation", 1), ("padding", 0))
    )
    kernel = image.spread(call["weight"].shape[2:], 1)
    sizes = image.spread(call.result.shape[2:], 1)
    reach = [gap * (size - 1) + 1 for gap, size in zip(gaps, kernel, strict=True)]
    x, pads = trimmed(b, image.tensor, sizes, reach, strides, before)
    groups, channels, outputs = call["groups"], x.shape[-1], call["weight"].shape[0]
    # (Output channels, input channels, kernel.)
    filters = b.shaped(weight, (outputs, channels // groups, *kernel))
    rank = len(filters.order)
    if groups == channels and groups > 1 and rank == 4:
        parts = b.shaped(filters, (groups, outputs // groups, *kernel))
        constant = b.stored(parts, (2, 3, 0, 1))
        operator: Operator = DepthwiseConv2d(pads, strides, gaps, acc_type=_SUMS)  # type: ignore[arg-type]
        return _emitted(b, operator, x, constant, bias, sizes, outputs)
    kind = Conv2d if rank == 4 else Conv3d
    operator = kind(pads, strides, gaps, acc_type=_SUMS)  # type: ignore[arg-type]
    return _grouped(b, operator, x, filters, bias, sizes, groups)


def _grouped(
    b: VgfBuilder, operator: Operator, x: Tensor, filters: Value, bias: Tensor, sizes: Sequence[int], groups: int
) -> Tensor:
    """One convolution for each group; filters are (outputs, inputs of a group, kernel)."""
    outputs, each = filters.shape[0] // groups, x.shape[-1] // groups
    order = (0, *range(2, len(filters.order)), 1)
    parts = []
    for group in range(groups):
        own = (
            b.stored(b.cut(filters, 0, group * outputs, (group + 1) * outputs), order)
            if groups > 1
            else b.stored(filters, order)
        )
        part = _channels(b, x, group * each, each)
        term = bias if bias.size == 1 else _channels(b, bias, group * outputs, outputs)
        parts.append(_emitted(b, operator, part, own, term, sizes, outputs))
    return b.joined(parts, len(x.shape) - 1, "groups")


def _channels(b: VgfBuilder, x: Tensor, start: int, count: int) -> Tensor:
    """Some of the last axis."""
    return b.sliced(x, (*[0] * (len(x.shape) - 1), start), (*x.shape[:-1], count))


def _emitted(
    b: VgfBuilder, operator: Operator, x: Tensor, weight: Tensor, bias: Tensor, sizes: Sequence[int], outputs: int
) -> Tensor:
    zero = b.graph.constant([0], x.dtype)
    return b.emit(operator, (x, weight, bias, zero, zero), (x.shape[0], *sizes, outputs), x.dtype)


def _transposed(b: VgfBuilder, call: Call, image: Image, weight: Value, bias: Tensor) -> Tensor:
    """TOSA pads the result: PyTorch's padding is what it crops, and what further padding adds is never computed."""
    strides, before, more = (
        image.spread(call[name], at) for name, at in (("stride", 1), ("padding", 0), ("output_padding", 0))
    )
    x, groups = image.tensor, call["groups"]
    kernel = image.spread(call["weight"].shape[2:], 1)
    inputs, outputs = call["weight"].shape[:2]
    # (Groups, inputs of a group, outputs of a group, kernel) -> (all outputs, inputs of a group, kernel).
    parts = b.shaped(weight, (groups, inputs // groups, outputs, *kernel)).permuted((0, 2, 1, 3, 4))
    filters = b.shaped(parts, (groups * outputs, inputs // groups, *kernel))
    pads = [item for pad, extra in zip(before, more, strict=True) for item in (-pad, extra - pad)]
    operator = TransposeConv2d(tuple(pads), strides, acc_type=_SUMS)  # type: ignore[arg-type]
    return _grouped(b, operator, x, filters, bias, image.spread(call.result.shape[2:], 1), groups)


# -- conditions --------------------------------------------------------------------------------------------------------


def one_to_three_axes(call: Call) -> str | None:
    """Over one, two or three axes, of a batch; over three not transposed."""
    axes = call["weight"].rank - 2
    if axes not in (1, 2, 3) or call["input"].rank != axes + 2:
        return f"a convolution over {axes} axes of {call['input'].rank}"
    return "a transposed convolution over three axes" if axes == 3 and call["transposed"] else None


def level(call: Call) -> str | None:
    """Kernels with their gaps, steps and padding are at most 8192, by TOSA's level 8K."""
    axes = call["weight"].rank - 2
    settings = (per_axis(call[name], axes) for name in ("stride", "padding", "dilation"))
    return beyond_level(call["weight"].shape[2:], *settings)


def reading_windows(call: Call) -> str | None:
    """Some window reads more than padding."""
    if call["transposed"]:
        return None
    axes = call["weight"].rank - 2
    settings = (per_axis(call[name], axes) for name in ("stride", "padding", "dilation"))
    for count, size, step, pad, gap in zip(call.result.shape[2:], call["weight"].shape[2:], *settings, strict=True):
        if (count - 1) * step + (size - 1) * gap + 1 <= pad:
            return f"padding = {call['padding']}: along an axis no window reads anything else"
    return None


def plain_transposed(call: Call) -> str | None:
    """Transposed, without gaps in the kernel, and cropped by less than it."""
    if not call["transposed"]:
        return None
    axes = call["weight"].rank - 2
    kernel = call["weight"].shape[2:]
    pads, gaps = (per_axis(call[name], axes) for name in ("padding", "dilation"))
    if any(gap > 1 and size > 1 for gap, size in zip(gaps, kernel, strict=True)):
        return f"dilation = {list(gaps)} of a transposed convolution"
    if any(pad >= size for pad, size in zip(pads, kernel, strict=True)):
        return f"padding = {list(pads)} crops as much as the kernel of {tuple(kernel)} adds"
    return None


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("convolution.default", _convolution, REAL, one_to_three_axes, level, reading_windows, plain_transposed),
)
