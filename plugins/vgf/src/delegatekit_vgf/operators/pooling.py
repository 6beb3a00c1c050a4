"""Pooling over one or two axes."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import is_plain_average, per_axis, pooled_axes, shares_of, windows_of
from delegatekit_toolkit.constraints import rank, types_of, unused
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import Add, AvgPool2d, DType, Maximum, MaxPool2d, Tensor

from ..ir.builder import Lower, Made, Value, VgfBuilder
from .common import REAL, REALS, result_type, tensor
from .windows import beyond_level, image_of, result_of, trimmed

#: The most elements of a window along an axis that are looked up.
_LONGEST: Final = 32
#: The most elements of a window: float32 has all numbers up to this.
_MOST: Final = 1 << 24


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
    made = result_of(b, _pooled(b, call, AvgPool2d), call.result.shape)
    if is_plain_average(call):
        return made
    # (Shares may leave float16.)
    shares = b.constant(shares_of(call, torch.float32))
    return b.cast(b.product(b.cast(made, DType.FP32), shares), made.tensor.dtype)


def _maximum(b: VgfBuilder, call: Call) -> Value:
    if _gaps(call):
        return _looked_up(b, call, _places(call), MaxPool2d)
    return result_of(b, _pooled(b, call, MaxPool2d), call.results[0].shape)


def _maximum_and_nothing(b: VgfBuilder, call: Call) -> Made:
    return _maximum(b, call), None


def _adaptive(kind: type[AvgPool2d] | type[MaxPool2d]) -> Lower:
    """Windows of one size in equal steps, or of different sizes."""

    def lower(b: VgfBuilder, call: Call) -> Made:
        axes = pooled_axes(call)
        shape = call.results[0].shape
        if _whole(call):
            image = image_of(b, tensor(b, call), axes)
            sizes = image.spread(shape[-axes:], 1)
            steps = tuple(size // count for size, count in zip(image.tensor.shape[1:3], sizes, strict=True))
            value = result_of(b, _emitted(b, kind, image.tensor, (steps, steps, (0, 0, 0, 0)), sizes), shape)
        else:
            value = _looked_up(b, call, _shares(call), kind)
        return value if kind is AvgPool2d else (value, None)

    return lower


# -- windows that are looked up ----------------------------------------------------------------------------------------

#: The places of each window along an axis.
_Windows: TypeAlias = Sequence[Sequence[int]]


def _looked_up(
    b: VgfBuilder, call: Call, windows: Sequence[_Windows], kind: type[AvgPool2d] | type[MaxPool2d]
) -> Value:
    """The largest or the average of each window, one axis after the other: their elements are looked up.

    Averages of float16 are float32 on the way.
    """
    x = tensor(b, call)
    if kind is AvgPool2d:
        x = b.cast(x, DType.FP32)
    for axis, of_axis in enumerate(windows, len(x.order) - len(windows)):
        longest = max(map(len, of_axis))
        parts = []
        for number in range(longest):
            # The last element of a short window stands for those that it lacks, too, with its share.
            part = b.looked_up(x, axis, np.array([window[min(number, len(window) - 1)] for window in of_axis]))
            if kind is AvgPool2d:
                parts.append(b.product(part, _share(b, part, axis, number, of_axis)))
            else:
                parts.append(part)
        join = Add() if kind is AvgPool2d else Maximum()
        x = functools.reduce(functools.partial(b.apply, join), parts)
    return b.cast(x, result_type(call))


def _share(b: VgfBuilder, part: Value, axis: int, number: int, windows: _Windows) -> Value:
    longest = max(map(len, windows))
    shares = [1 / len(window) / (1 if number < len(window) - 1 else longest - len(window) + 1) for window in windows]
    shape = [len(shares) if at == axis else 1 for at in range(len(part.order))]
    return b.array(np.reshape(shares, shape), part.tensor.dtype)


def _places(call: Call) -> list[_Windows]:
    """The places of windows with gaps, along each axis, less those of padding."""
    axes = pooled_axes(call)
    return [
        [
            [place for place in range(at * step - pad, at * step - pad + window * gap, gap) if 0 <= place < size]
            for at in range(count)
        ]
        for size, count, window, step, pad, gap in zip(
            call["self"].shape[-axes:],
            call.results[0].shape[-axes:],
            *windows_of(call, axes),
            per_axis(call["dilation"], axes),
            strict=True,
        )
    ]


def _shares(call: Call) -> list[_Windows]:
    """The places of windows that share an axis between them, as evenly as they can."""
    axes = pooled_axes(call)
    return [
        [range(at * size // count, -(-(at + 1) * size // count)) for at in range(count)]
        for size, count in zip(call["self"].shape[-axes:], call.results[0].shape[-axes:], strict=True)
    ]


def _gaps(call: Call) -> bool:
    return set(per_axis(call["dilation"], pooled_axes(call))) != {1}


def _whole(call: Call) -> bool:
    axes = pooled_axes(call)
    pairs = zip(call["self"].shape[-axes:], call.results[0].shape[-axes:], strict=True)
    return not any(before % after for before, after in pairs)


# -- conditions --------------------------------------------------------------------------------------------------------


def short_gaps(call: Call) -> str | None:
    """With gaps: windows of at most 32 elements along an axis, and none of padding alone."""
    if not _gaps(call):
        return None
    lengths = [len(window) for windows in _places(call) for window in windows]
    if not min(lengths):
        return f"a window with dilation = {call['dilation']} reads only padding"
    return f"windows of {max(lengths)} with dilation = {call['dilation']}" if max(lengths) > _LONGEST else None


def short_shares(call: Call) -> str | None:
    """Sizes are multiples of the result's, or windows have at most 32 elements along an axis."""
    axes = pooled_axes(call)
    before, after = call["self"].shape[-axes:], call.results[0].shape[-axes:]
    if _whole(call):
        kernel = [size // count for size, count in zip(before, after, strict=True)]
        return _too_large(kernel, kernel)
    if max(len(window) for windows in _shares(call) for window in windows) <= _LONGEST:
        return None
    return f"from {before} to {after}: windows have different sizes, and more than {_LONGEST} elements"


def inside(call: Call) -> str | None:
    """No window is larger than 8192, by TOSA's level 8K, none reads only padding."""
    axes = pooled_axes(call)
    kernel, strides, pads = windows_of(call, axes)
    if refused := _too_large(kernel, strides):
        return refused
    if call.has("dilation") and _gaps(call):
        return None
    for size, count, window, step, pad in zip(
        call["self"].shape[-axes:], call.results[0].shape[-axes:], kernel, strides, pads, strict=True
    ):
        if pad >= window or (count - 1) * step - pad >= size:
            return f"padding = {list(pads)} for windows of {kernel}"
        if (count - 1) * step + window - size - pad >= window:
            return f"the last window of {kernel} reads only padding"
    return None


def _too_large(kernel: Sequence[int], strides: Sequence[int]) -> str | None:
    if math.prod(kernel) > _MOST:
        return f"windows of {tuple(kernel)}: more elements than float32 counts"
    return beyond_level(kernel, strides)


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
            short_gaps,
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
        short_gaps,
        inside,
    ),
    row("_adaptive_avg_pool2d.default", _adaptive(AvgPool2d), rank("self", 3, 4), REAL, short_shares),
    row("adaptive_avg_pool1d.default", _adaptive(AvgPool2d), rank("self", 2, 3), REAL, short_shares, keep=True),
    *(
        row(
            f"adaptive_max_pool{axes}d.default",
            _adaptive(MaxPool2d),
            rank("self", axes + 1, axes + 2),
            types_of("self", *REALS),
            unused(1, "places"),
            short_shares,
            keep=True,
        )
        for axes in (1, 2)
    ),
)
