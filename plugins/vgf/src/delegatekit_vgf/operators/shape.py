"""Operators that move elements: views, permutations, slices, joins, repetitions, padding.

Most of them are passengers: a delegate of moves alone would only copy tensors.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, pads_of, written_part
from delegatekit_toolkit.constraints import has_axes, no_gaps, rank, same_dtypes
from delegatekit_toolkit.narrowing import numbers_fit
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import Pad, Reverse

from ..ir.builder import Lower, Value, VgfBuilder
from .common import MOVED, NUMBERS, dropped, inserted, result_type, tensor


def _view(b: VgfBuilder, call: Call) -> Value:
    return b.shaped(tensor(b, call), call.result.shape)


def _permute(b: VgfBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return x.permuted([axis_of(dim, len(x.order)) for dim in call["dims"]])


def _expand(b: VgfBuilder, call: Call) -> Value:
    return b.expanded(tensor(b, call), call.result.shape)


def _copy(b: VgfBuilder, call: Call) -> Value:
    """The other tensor's elements, as large as the first and in its type."""
    return b.expanded(b.cast(tensor(b, call, "src"), result_type(call)), call.result.shape)


def _repeat(b: VgfBuilder, call: Call) -> Value:
    x = b.ranked(tensor(b, call), call.result.rank)
    return b.repeated(x, [call["repeats"][axis] for axis in x.order])


def _slice(b: VgfBuilder, call: Call) -> Value:
    x = tensor(b, call)
    axis = axis_of(call["dim"], len(x.order))
    start, end, step = slice(call["start"], call["end"], call["step"]).indices(x.shape[axis])
    return b.cut(x, axis, start, end, step)


def _select(b: VgfBuilder, call: Call) -> Value:
    x = tensor(b, call)
    axis = axis_of(call["dim"], len(x.order))
    index = axis_of(call["index"], x.shape[axis])
    return dropped(b, b.cut(x, axis, index, index + 1), [axis])


def _flip(b: VgfBuilder, call: Call) -> Value:
    x = tensor(b, call)
    for axis in sorted({axis_of(dim, len(x.order)) for dim in call["dims"]}):
        made = b.emit(Reverse(x.stored_axis(axis)), (x.tensor,), x.tensor.shape, x.tensor.dtype)
        x = Value(made, x.order)
    return x


def _roll(b: VgfBuilder, call: Call) -> Value:
    x, dims = tensor(b, call), call["dims"]
    if not dims:  # of all elements, one after the other
        x, dims = b.shaped(x, [math.prod(x.shape)]), [0]
    for shift, dim in zip(call["shifts"], dims, strict=True):
        axis = axis_of(dim, len(x.order))
        size = x.shape[axis]
        if last := shift % size:
            x = b.chain([b.cut(x, axis, size - last, size), b.cut(x, axis, 0, size - last)], axis)
    return b.shaped(x, call.result.shape)


def _concatenate(b: VgfBuilder, call: Call) -> Value:
    return b.chain([b.value(item) for item in call["tensors"]], axis_of(call["dim"], call.result.rank))


def _stack(b: VgfBuilder, call: Call) -> Value:
    axis = axis_of(call["dim"], call.result.rank)
    return b.chain([inserted(b, b.value(item), axis) for item in call["tensors"]], axis)


def _full(b: VgfBuilder, call: Call) -> Value:
    return b.array(np.full(call.result.shape, call["fill_value"]), result_type(call))


# -- writing into a copy -----------------------------------------------------------------------------------------------


def _slice_scatter(b: VgfBuilder, call: Call) -> Value:
    return _overwritten(b, call, tensor(b, call, "src"))


def _select_scatter(b: VgfBuilder, call: Call) -> Value:
    return _overwritten(b, call, inserted(b, tensor(b, call, "src"), written_part(call)[0]))


def _overwritten(b: VgfBuilder, call: Call, source: Value) -> Value:
    """With a source in the place of a part."""
    x = tensor(b, call)
    axis, start, end = written_part(call)
    parts = [(0, start), None, (end, x.shape[axis])]
    return b.chain(
        [source if part is None else b.cut(x, axis, *part) for part in parts if part is None or part[0] < part[1]], axis
    )


# -- padding -----------------------------------------------------------------------------------------------------------


def _pad(b: VgfBuilder, call: Call) -> Value:
    x = tensor(b, call)
    for axis, (before, after) in enumerate(pads := pads_of(call["pad"], len(x.order))):
        if min(before, after) < 0:
            x = b.cut(x, axis, max(-before, 0), x.shape[axis] - max(-after, 0))
    sizes = [max(number, 0) for axis in x.order for number in pads[axis]]
    shape = [size + sum(sizes[2 * at : 2 * at + 2]) for at, size in enumerate(x.tensor.shape)]
    if not any(sizes):
        return x
    value = b.graph.constant([call["value"] or 0], x.tensor.dtype)
    return Value(b.emit(Pad(), (x.tensor, b.sizes(sizes), value), shape, x.tensor.dtype), x.order)


def _mirrored(mode: str) -> Lower:
    def lower(b: VgfBuilder, call: Call) -> Value:
        """Looked up, one axis after the other."""
        x = tensor(b, call)
        for axis, (before, after) in enumerate(pads_of(call["padding"], len(x.order))):
            if (before, after) != (0, 0):
                places = np.pad(np.arange(x.shape[axis]), (max(before, 0), max(after, 0)), mode=mode)  # type: ignore[call-overload]
                x = b.looked_up(x, axis, places[max(-before, 0) : len(places) - max(-after, 0)])
        return x

    return lower


def _unfold(b: VgfBuilder, call: Call) -> Value:
    """Windows along an axis, each as a new last axis: looked up."""
    x, size, step = tensor(b, call), call["size"], call["step"]
    rank = len(x.order)
    axis = axis_of(call["dimension"], rank)
    count = call.result.shape[axis]
    found = b.looked_up(x, axis, (np.arange(count)[:, None] * step + np.arange(size)).reshape(-1))
    made = b.shaped(found, [*x.shape[:axis], count, size, *x.shape[axis + 1 :]])
    return made.permuted([*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


def _shuffle(b: VgfBuilder, call: Call) -> Value:
    *outer, channels, high, wide = tensor(b, call).shape
    factor = call["upscale_factor"]
    parts = b.shaped(tensor(b, call), [*outer, channels // factor**2, factor, factor, high, wide])
    rank = len(outer)
    moved = parts.permuted([*range(rank + 1), *(rank + axis for axis in (3, 1, 4, 2))])
    return b.shaped(moved, call.result.shape)


def _unshuffle(b: VgfBuilder, call: Call) -> Value:
    *outer, channels, high, wide = tensor(b, call).shape
    factor = call["downscale_factor"]
    parts = b.shaped(tensor(b, call), [*outer, channels, high // factor, factor, wide // factor, factor])
    rank = len(outer)
    moved = parts.permuted([*range(rank + 1), *(rank + axis for axis in (2, 4, 1, 3))])
    return b.shaped(moved, call.result.shape)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("view_copy.default squeeze_copy.dims unsqueeze_copy.default", _view, MOVED, passenger=True),
    row("permute_copy.default", _permute, MOVED, passenger=True),
    row("expand_copy.default", _expand, MOVED, passenger=True),
    row("copy.default", _copy, MOVED, passenger=True),
    row("repeat.default", _repeat, MOVED, passenger=True),
    row("flip.default", _flip, MOVED, passenger=True),
    row("roll.default", _roll, MOVED, keep=True, passenger=True),
    row("unfold_copy.default", _unfold, MOVED, has_axes("self"), passenger=True),
    row("select_copy.int", _select, MOVED, has_axes("self"), passenger=True),
    row("slice_copy.Tensor", _slice, MOVED, has_axes("self"), passenger=True),
    row("cat.default", _concatenate, MOVED, same_dtypes(), passenger=True),
    row("stack.default", _stack, MOVED, same_dtypes(), keep=True, passenger=True),
    row("full.default", _full, NUMBERS, numbers_fit, passenger=True),
    row("slice_scatter.default", _slice_scatter, MOVED, same_dtypes(), no_gaps(), passenger=True),
    row("select_scatter.default", _select_scatter, MOVED, same_dtypes(), passenger=True),
    row("constant_pad_nd.default", _pad, MOVED, numbers_fit, has_axes("self"), passenger=True),
    row("pixel_shuffle.default", _shuffle, MOVED, rank("self", 3, 4), keep=True, passenger=True),
    row("pixel_unshuffle.default", _unshuffle, MOVED, rank("self", 3, 4), keep=True, passenger=True),
    *(
        row(f"{mode}ion_pad{axes}d.default", _mirrored(name), MOVED, keep=True, passenger=True)
        for mode, name in (("reflect", "reflect"), ("replicat", "edge"))
        for axes in (1, 2, 3)
    ),
)
