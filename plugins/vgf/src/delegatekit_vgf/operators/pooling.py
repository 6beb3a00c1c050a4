"""Pooling over one or two axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import is_plain_average, per_axis, pooled_axes, shares_of, windows_of
from delegatekit_toolkit.constraints import rank, types_of, unused
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import AvgPool2d, DType, MaxPool2d, Tensor

from ..ir.builder import Lower, Made, Value, VgfBuilder
from .common import REAL, REALS, tensor
from .windows import image_of, result_of, trimmed


def _pooled(b: VgfBuilder, call: Call, kind: type[AvgPool2d] | type[MaxPool2d]) -> Tensor:
    axes = pooled_axes(call)
    image = image_of(b, tensor(b, call), axes)
    kernel, strides, before = windows_of(call, axes)
    kernel, strides, before = image.spread(kernel, 1), image.spread(strides, 1), image.spread(before, 0)
    sizes = image.spread(call.results[0].shape[-axes:], 1)
    x, pads = trimmed(b, image.tensor, sizes, kernel, strides, before)
    return _emitted(b, kind, x, (kernel, strides, pads), sizes)


def _emitted(
    b: VgfBuilder, kind: type[AvgPool2d] | type[MaxPool2d], x: Tensor, windows: Sequence[Any], sizes: Sequence[int]
) -> Tensor:
    """Windows are kernel, steps and padding."""
    shape, zero = (x.shape[0], *sizes, x.shape[3]), b.graph.constant([0], x.dtype)
    if kind is MaxPool2d:
        return b.emit(MaxPool2d(*windows), (x,), shape, x.dtype)
    kernel, strides, pads = windows
    return b.emit(AvgPool2d(kernel, strides, pads, DType.FP32), (x, zero, zero), shape, x.dtype)


def _average(b: VgfBuilder, call: Call) -> Value:
    """The average of what is there, and where padding or another divisor count, times what is there of that."""
    made = _pooled(b, call, AvgPool2d)
    shape = call.result.shape
    if not is_plain_average(call):
        shares = Value.dense(b.constant(shares_of(call)).tensor)
        return b.product(result_of(b, made, shape), shares)
    return result_of(b, made, shape)


def _maximum(b: VgfBuilder, call: Call) -> Value:
    return result_of(b, _pooled(b, call, MaxPool2d), call.results[0].shape)


def _maximum_and_nothing(b: VgfBuilder, call: Call) -> Made:
    return _maximum(b, call), None


def _adaptive(kind: type[AvgPool2d] | type[MaxPool2d]) -> Lower:
    """Windows of one size in equal steps."""

    def lower(b: VgfBuilder, call: Call) -> Made:
        axes = pooled_axes(call)
        image = image_of(b, tensor(b, call), axes)
        sizes = image.spread(call.results[0].shape[-axes:], 1)
        steps = tuple(size // count for size, count in zip(image.tensor.shape[1:3], sizes, strict=True))
        made = _emitted(b, kind, image.tensor, (steps, steps, (0, 0, 0, 0)), sizes)
        value = result_of(b, made, call.results[0].shape)
        return value if kind is AvgPool2d else (value, None)

    return lower


# -- conditions --------------------------------------------------------------------------------------------------------


def without_gaps(call: Call) -> str | None:
    """Windows without gaps."""
    gaps = per_axis(call["dilation"], pooled_axes(call))
    return None if set(gaps) == {1} else f"dilation = {list(gaps)}"


def whole_windows(call: Call) -> str | None:
    """Sizes are multiples of the result's."""
    axes = pooled_axes(call)
    before, after = call["self"].shape[-axes:], call.results[0].shape[-axes:]
    return None if not any(a % b for a, b in zip(before, after, strict=True)) else f"from {before} to {after}"


def inside(call: Call) -> str | None:
    """No window is larger than TOSA's 8192, none reads only padding."""
    axes = pooled_axes(call)
    kernel, strides, pads = windows_of(call, axes)
    if max((*kernel, *strides)) > 8192 or math.prod(kernel) > 1 << 24:
        return f"windows of {kernel} in steps of {strides}"
    for size, count, window, step, pad in zip(
        call["self"].shape[-axes:], call.results[0].shape[-axes:], kernel, strides, pads, strict=True
    ):
        if pad >= window or (count - 1) * step - pad >= size:
            return f"padding = {list(pads)} for windows of {kernel}"
        if (count - 1) * step + window - size - pad >= window:
            return f"the last window of {kernel} reads only padding"
    return None


#: With its type: rows that are made in a loop do not see that of the table.
_MAXIMUM: Final[Lower] = _maximum

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("avg_pool1d.default", _average, rank("self", 2, 3), REAL, inside, keep=True),
    row("avg_pool2d.default", _average, rank("self", 3, 4), REAL, inside),
    *(
        row(
            f"max_pool{axes}d.default",
            _MAXIMUM,
            rank("self", axes + 1, axes + 2),
            REAL,
            without_gaps,
            inside,
            keep=True,
        )
        for axes in (1, 2)
    ),
    row(
        "max_pool2d_with_indices.default",
        _maximum_and_nothing,
        rank("self", 3, 4),
        types_of("self", *REALS),
        unused(1, "places"),
        without_gaps,
        inside,
    ),
    row("_adaptive_avg_pool2d.default", _adaptive(AvgPool2d), rank("self", 3, 4), REAL, whole_windows),
    row("adaptive_avg_pool1d.default", _adaptive(AvgPool2d), rank("self", 2, 3), REAL, whole_windows, keep=True),
    *(
        row(
            f"adaptive_max_pool{axes}d.default",
            _adaptive(MaxPool2d),
            rank("self", axes + 1, axes + 2),
            types_of("self", *REALS),
            unused(1, "places"),
            whole_windows,
            keep=True,
        )
        for axes in (1, 2)
    ),
)
