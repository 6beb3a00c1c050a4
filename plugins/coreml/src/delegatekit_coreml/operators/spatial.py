"""Pooling, over one, two or three axes."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import per_axis, pooled_axes, windows_of
from delegatekit_toolkit.constraints import rank, types_of, unused
from delegatekit_toolkit.expressions import is_fixed
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, numbers
from .common import FLOATS, REAL, mul, reshaped, tensor
from .program import Lower, Made, ProgramBuilder

# -- pooling -----------------------------------------------------------------------------------------------------------


def _pads(call: Call) -> list[tuple[int, int]]:
    """Before and after each axis. What `ceil_mode` adds to the result reaches beyond the padding."""
    kernel, strides, padding = windows_of(call, pooled_axes(call))
    if not call["ceil_mode"]:
        return [(pad, pad) for pad in padding]
    before, after = call["self"].shape[-len(kernel) :], call.results[0].shape[-len(kernel) :]
    return [
        (pad, max((new - 1) * stride + window - old - pad, pad))
        for window, stride, pad, old, new in zip(kernel, strides, padding, before, after, strict=True)
    ]


def _pooled(b: ProgramBuilder, call: Call, kind: str, **more: Any) -> Var:
    kernel, strides, _ = windows_of(call, pooled_axes(call))
    pads = [pad for pair in _pads(call) for pad in pair]
    return _pool(b, tensor(b, call), call.results[0].shape, kind, kernel, strides, pads, **more)


def _pool(
    b: ProgramBuilder,
    x: Var,
    shape: tuple[Any, ...],
    kind: str,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: list[int],
    **more: Any,
) -> Var:
    """A pooling, also of one image without a batch."""
    if len(x.shape) == len(kernel) + 1:
        x = reshaped(b, x, (1, *x.shape))
    made = b.call(
        kind,
        x=x,
        kernel_sizes=numbers(kernel),
        strides=numbers(strides),
        pad_type="custom",
        pad=numbers(pads),
        **more,
    )
    return reshaped(b, made, shape)


def _average(b: ProgramBuilder, call: Call) -> Var:
    divisor = _divisor(call)
    if divisor is None:
        return _pooled(b, call, "avg_pool", exclude_padding_from_average=not call["count_include_pad"])
    made = _pooled(b, call, "avg_pool")
    return mul(b, made, math.prod(windows_of(call, pooled_axes(call))[0]) / divisor)


def _divisor(call: Call) -> int | None:
    """The divisor of sums of windows in place of the number of elements."""
    found: int | None = call["divisor_override"] if call.has("divisor_override") else None
    return found


def _maximum(b: ProgramBuilder, call: Call) -> Var:
    return _pooled(b, call, "max_pool")


def _maximum_and_nothing(b: ProgramBuilder, call: Call) -> Made:
    return _pooled(b, call, "max_pool"), None


def fixed_ceiling(call: Call) -> str | None:
    """ceil_mode only where images keep their size."""
    if not call["ceil_mode"] or all(map(is_fixed, call["self"].shape[1:])):
        return None
    return "ceil_mode of images whose size changes from call to call"


def fixed_images(call: Call) -> str | None:
    """Images keep their size."""
    if all(map(is_fixed, call["self"].shape[-pooled_axes(call) :])):
        return None
    return "the size of the images changes from call to call"


def whole_windows(call: Call) -> str | None:
    """With count_include_pad, no window reaches beyond the padding."""
    if _divisor(call) is not None:
        return None
    _, _, padding = windows_of(call, pooled_axes(call))
    if call["count_include_pad"] and any(after > pad for (_, after), pad in zip(_pads(call), padding, strict=True)):
        return "a window of ceil_mode reaches beyond the padding: its average has another divisor"
    return None


def no_gaps(call: Call) -> str | None:
    """dilation is 1."""
    dilation = per_axis(call["dilation"], 1)
    return None if set(dilation) <= {1} else f"dilation = {list(dilation)}: MIL's windows have no gaps"


def _pieces(call: Call) -> tuple[int, ...] | None:
    """The windows of an adaptive pooling; None where they differ from place to place."""
    before, after = _changed_sizes(call)
    if any(old % new for old, new in zip(before, after, strict=True)):
        return None
    return tuple(old // new for old, new in zip(before, after, strict=True))


def _changed_sizes(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    axes = pooled_axes(call)
    return call["self"].shape[-axes:], call.results[0].shape[-axes:]


def equal_windows(call: Call) -> str | None:
    """The result's sizes divide the input's."""
    if _pieces(call) is None:
        before, after = _changed_sizes(call)
        return f"{before} to {after} needs windows of different sizes"
    return None


def _adaptive_average(b: ProgramBuilder, call: Call) -> Var:
    """Windows of different sizes are a matrix for each axis."""
    x, window = tensor(b, call), _pieces(call)
    if window is not None:
        return _pool(b, x, call.result.shape, "avg_pool", window, window, [0, 0] * len(window))
    before, after = _changed_sizes(call)
    for axis, (old, new) in enumerate(zip(before, after, strict=True), len(x.shape) - len(before)):
        if old == new:
            continue
        shape = tuple(x.shape)
        rows = reshaped(b, x, (math.prod(shape[:axis]), old, math.prod(shape[axis + 1 :])))
        made = b.call("matmul", x=b.constant(_averages(old, new)), y=rows)
        x = reshaped(b, made, (*shape[:axis], new, *shape[axis + 1 :]))
    return x


def _averages(old: int, new: int) -> torch.Tensor:
    """The shares (1, new, old) that elements have in the averages of an adaptive pooling."""
    shares = torch.zeros(1, new, old)
    for row_index in range(new):
        start, end = row_index * old // new, -(-(row_index + 1) * old // new)
        shares[0, row_index, start:end] = 1 / (end - start)
    return shares


def _adaptive_maximum(b: ProgramBuilder, call: Call) -> Made:
    x, window = tensor(b, call), _pieces(call)
    assert window is not None
    return _pool(b, x, call.results[0].shape, "max_pool", window, window, [0, 0] * len(window)), None


_AVERAGE: Final[Lower] = _adaptive_average
_MAXIMUM: Final[Lower] = _adaptive_maximum
_MAXIMUM_AND_NOTHING: Final[Lower] = _maximum_and_nothing

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("avg_pool2d.default", _average, rank("self", 3, 4), REAL, fixed_ceiling, whole_windows),
    row("avg_pool3d.default", _average, rank("self", 4, 5), REAL, whole_windows, static_only=True),
    row("max_pool2d.default", _maximum, rank("self", 3, 4), REAL, no_gaps, fixed_ceiling, keep=True),
    row("max_pool3d.default", _maximum, rank("self", 4, 5), REAL, no_gaps, keep=True, static_only=True),
    *(
        row(
            f"max_pool{axes}d_with_indices.default",
            _MAXIMUM_AND_NOTHING,
            rank("self", axes + 1, axes + 2),
            types_of("self", *FLOATS),
            no_gaps,
            fixed_ceiling,
            unused(1, "indices"),
        )
        for axes in (2, 3)
    ),
    *(
        row(
            f"_adaptive_avg_pool{axes}d.default",
            _AVERAGE,
            rank("self", axes + 1, axes + 2),
            REAL,
            fixed_images,
        )
        for axes in (2, 3)
    ),
    *(
        row(
            f"adaptive_max_pool{axes}d.default",
            _MAXIMUM,
            rank("self", axes + 1, axes + 2),
            types_of("self", *FLOATS),
            equal_windows,
            unused(1, "indices"),
            keep=True,
            static_only=True,
        )
        for axes in (2, 3)
    ),
)
