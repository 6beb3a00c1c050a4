"""Pooling over one, two or three axes: a view of all windows, which are reduced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import is_plain_average, per_axis, pooled_axes, shares_of, windows_of
from delegatekit_toolkit.constraints import rank, types_of, unused
from delegatekit_toolkit.flatbuffer import Table
from delegatekit_toolkit.support import Constraint, Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Made, Value
from ..ir.sizes import size_of
from .common import (
    FLOATS,
    REAL,
    concatenated,
    expanded,
    fixed,
    in_float32,
    mul,
    reduced,
    sliced,
    tensor,
    unary,
)


def _windows(b: GraphBuilder, call: Call, x: Value, filling: float) -> Value:
    """All windows: the sizes of the result, then those of a window. They are a view of the padded image."""
    axes = pooled_axes(call)
    kernel, strides, pads = windows_of(call, axes)
    gaps = per_axis(call["dilation"], axes) if call.has("dilation") else (1,) * axes
    sizes = [size_of(size) for size in call.results[0].shape[-axes:]]
    front = x.rank - axes
    flat, shape = [0, 0] * front, list(x.shape[:front])
    for axis, (size, window, step, pad, gap) in enumerate(zip(sizes, kernel, strides, pads, gaps, strict=True)):
        own = x.shape[front + axis]
        after = pad
        if isinstance(size, int) and isinstance(own, int):
            after = max((size - 1) * step + (window - 1) * gap + 1 - own - pad, 0)
        flat += [pad, after]
        shape.append(own + pad + after)
    if any(flat):
        x = b.op(schema.PadNode, shape, x.dtype, x=x, pad_width=flat, mode="constant", constant_value=filling)
    places = [math.prod(x.shape[axis + 1 :]) for axis in range(x.rank)]
    found = (*x.shape[:front], *sizes, *kernel)
    steps = [*places[:front], *(place * step for place, step in zip(places[front:], strides, strict=True))]
    steps += [place * gap for place, gap in zip(places[front:], gaps, strict=True)]
    made = b.op(schema.AsStridedNode, found, x.dtype, x=x, shape=found, strides=steps)
    # Copied where there are gaps: MLX reduces such views wrongly, on processors at least.
    return made if max(gaps) == 1 else unary(b, schema.ContiguousNode, made)


def _reduced(b: GraphBuilder, kind: type[Table], windows: Value, axes: int) -> Value:
    return reduced(b, kind, windows, range(windows.rank - axes, windows.rank), keep=False)


def _average(b: GraphBuilder, call: Call) -> Value:
    axes = pooled_axes(call)
    pads = windows_of(call, axes)[2]

    def make(x: Value) -> Value:
        windows = _windows(b, call, x, 0.0)
        if not any(pads) and is_plain_average(call) and not call["ceil_mode"]:
            return _reduced(b, schema.MeanNode, windows, axes)
        made = _reduced(b, schema.SumNode, windows, axes)
        return mul(b, made, b.constant(_shares(call)))

    return in_float32(b, tensor(b, call), make)


def _shares(call: Call) -> torch.Tensor:
    """The inverse of each window's divisor."""
    axes = pooled_axes(call)
    sizes = call["self"].shape[-axes:]
    pool = getattr(torch.ops.aten, f"avg_pool{axes}d").default
    settings = [call[name] for name in ("kernel_size", "stride", "padding", "ceil_mode")]
    size = math.prod(per_axis(call["kernel_size"], axes))
    # The elements in each window: PyTorch divides their number by the whole window's where padding counts.
    counts = pool(torch.ones(1, *sizes, dtype=torch.float64), *settings, True, *([1] if axes > 1 else []))
    shares: torch.Tensor = shares_of(call, torch.float64) / (counts if axes > 1 else counts * size)
    return shares.float()


def _maximum(b: GraphBuilder, call: Call) -> Value:
    windows = _windows(b, call, tensor(b, call), -math.inf)
    return _reduced(b, schema.MaxNode, windows, pooled_axes(call))


def _maximum_and_places(b: GraphBuilder, call: Call) -> Made:
    """The maxima, and where they are in their images."""
    axes = pooled_axes(call)
    windows = _windows(b, call, tensor(b, call), -math.inf)
    made = _reduced(b, schema.MaxNode, windows, axes)
    if not any(user.operator == "getitem" and user.node.args[1] == 1 for user in call.users):
        return made, None
    size = math.prod(int(count) for count in windows.shape[-axes:])
    flat = b.reshape(windows, (*windows.shape[:-axes], size))
    shape = (*flat.shape[:-1], 1)
    best = b.op(schema.ArgmaxNode, shape, torch.int64, x=flat, axis=flat.rank - 1, keepdims=True)
    table = expanded(b, b.constant(_places(call)), flat.shape)
    found = b.op(schema.TakeAlongAxisNode, shape, torch.int64, x=table, indices=best, axis=flat.rank - 1)
    return made, b.reshape(found, shape[:-1])


def _places(call: Call) -> torch.Tensor:
    """The place in its image of each element of each window, (*sizes, elements of a window)."""
    axes = pooled_axes(call)
    kernel, strides, pads = windows_of(call, axes)
    gaps, sizes = per_axis(call["dilation"], axes), call["self"].shape[-axes:]
    found = torch.zeros((1,) * (2 * axes), dtype=torch.int64)
    for axis, count in enumerate(call.results[0].shape[-axes:]):
        at = torch.arange(count)[:, None] * strides[axis] - pads[axis] + torch.arange(kernel[axis]) * gaps[axis]
        shape = [1] * (2 * axes)
        shape[axis], shape[axes + axis] = at.shape
        found = found * sizes[axis] + at.reshape(shape)
    return found.flatten(axes)


# -- to a given size ---------------------------------------------------------------------------------------------------


def _adapted(b: GraphBuilder, call: Call, x: Value, kind: type[Table]) -> Value:
    """Each part of an axis reduced, one axis after the other."""
    for axis in range(x.rank - pooled_axes(call), x.rank):
        before, after = x.shape[axis], call.results[0].shape[axis]
        assert isinstance(before, int) and isinstance(after, int)
        if before % after == 0:
            parts = b.reshape(x, (*x.shape[:axis], after, before // after, *x.shape[axis + 1 :]))
            x = reduced(b, kind, parts, [axis + 1], keep=False)
            continue
        bounds = [(place * before // after, -(-(place + 1) * before // after)) for place in range(after)]
        pieces = [reduced(b, kind, sliced(b, x, axis, *part), [axis]) for part in bounds]
        x = concatenated(b, pieces, axis)
    return x


def _adaptive_average(b: GraphBuilder, call: Call) -> Value:
    return in_float32(b, tensor(b, call), lambda x: _adapted(b, call, x, schema.MeanNode))


def _adaptive_maximum(b: GraphBuilder, call: Call) -> Made:
    return _adapted(b, call, tensor(b, call), schema.MaxNode), None


# -- conditions --------------------------------------------------------------------------------------------------------


def _image(call: Call) -> Sequence[Any]:
    return (*call["self"].shape[-pooled_axes(call) :], *call.results[0].shape[-pooled_axes(call) :])


def known_shares(call: Call) -> str | None:
    """Images keep their size where padding, rounding up, or a divisor of its own counts."""
    plain = is_plain_average(call) and not any(windows_of(call, pooled_axes(call))[2]) and not call["ceil_mode"]
    if plain or fixed(_image(call)):
        return None
    return "the size of the images changes from call to call, and padding or a divisor of its own counts"


def known_windows(call: Call) -> str | None:
    """Images keep their size where the last window may exceed them."""
    if not call["ceil_mode"] or fixed(_image(call)):
        return None
    return "the size of the images changes from call to call, with ceil_mode"


def known_places(call: Call) -> str | None:
    """Images keep their size where places are asked for."""
    used = any(user.operator == "getitem" and user.node.args[1] == 1 for user in call.users)
    return "places in images whose size changes from call to call" if used and not fixed(_image(call)) else None


def fixed_image(call: Call) -> str | None:
    """The sizes of images are fixed."""
    return None if fixed(_image(call)) else "the size of the images changes from call to call"


def _ranks(axes: int) -> Constraint:
    """Images of so many axes with channels, with a batch or without."""
    return rank("self", axes + 1, axes + 2)


_AVERAGE: Final[Lower] = _average
_MAXIMUM: Final[Lower] = _maximum
_ADAPTIVE_AVERAGE: Final[Lower] = _adaptive_average
_MAXIMUM_AND_PLACES: Final[Lower] = _maximum_and_places
_ADAPTIVE_MAXIMUM: Final[Lower] = _adaptive_maximum

ROWS: Final[tuple[Row[Lower], ...]] = (
    *(row(f"avg_pool{axes}d.default", _AVERAGE, _ranks(axes), REAL, known_shares) for axes in (2, 3)),
    *(row(f"max_pool{axes}d.default", _MAXIMUM, _ranks(axes), REAL, known_windows, keep=True) for axes in (1, 2, 3)),
    *(
        row(
            f"max_pool{axes}d_with_indices.default",
            _MAXIMUM_AND_PLACES,
            _ranks(axes),
            types_of("self", *FLOATS),
            known_windows,
            known_places,
        )
        for axes in (2, 3)
    ),
    *(row(f"_adaptive_avg_pool{axes}d.default", _ADAPTIVE_AVERAGE, _ranks(axes), REAL, fixed_image) for axes in (2, 3)),
    *(
        row(
            f"adaptive_max_pool{axes}d.default",
            _ADAPTIVE_MAXIMUM,
            _ranks(axes),
            types_of("self", *FLOATS),
            unused(1, "places"),
            fixed_image,
            keep=True,
        )
        for axes in (2, 3)
    ),
)
