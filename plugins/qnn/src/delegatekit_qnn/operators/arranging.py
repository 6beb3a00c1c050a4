"""Operators that put elements into another order, or other elements in their place: flips, rolls, windows, writes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, diagonal_of, pads_of, written_part
from delegatekit_toolkit.constraints import has_axes, no_gaps, padding_outwards, same_dtypes
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row, row

from ..ir.values import Value
from .common import ANY, REAL, as_numbers, as_type, overwritten_is_read
from .moves import alike, concatenated, inserted, looked_up, sliced, tiled
from .program import Lower, ProgramBuilder


def _flip(b: ProgramBuilder, call: Call) -> Value:
    """From the last element down to the first."""
    like = b.value(call["self"])
    x = as_numbers(b, like)
    # PyTorch lets a tensor without axes have one.
    places = {x.stored_axis(axis_of(dim, x.rank)) for dim in call["dims"]} if x.rank else set()
    if not places:
        return like
    sizes = enumerate(x.tensor.shape)
    ranges = [[size - 1, -size - 1, -1] if place in places else [0, size, 1] for place, size in sizes]
    made = b.like("StridedSlice", x.tensor, ranges=np.array(ranges, dtype=np.int32))
    return as_type(b, Value(made, x.order), like)


def _copy(b: ProgramBuilder, call: Call) -> Value:
    """The other tensor's elements, as large as the first."""
    source, shape = b.value(call["src"]), call.result.shape
    tensor = b.reshaped(b.dense(source), (1,) * (len(shape) - source.rank) + source.shape)
    counts = [new if old == 1 else 1 for new, old in zip(shape, tensor.shape, strict=True)] if shape else [1]
    return Value(tiled(b, tensor, counts), identity(len(shape)))


# -- writing into a copy -----------------------------------------------------------------------------------------------


def _slice_scatter(b: ProgramBuilder, call: Call) -> Value:
    return _overwritten(b, call, b.value(call["src"]))


def _select_scatter(b: ProgramBuilder, call: Call) -> Value:
    return _overwritten(b, call, inserted(b, b.value(call["src"]), written_part(call)[0]))


def _overwritten(b: ProgramBuilder, call: Call, source: Value) -> Value:
    axis, start, end = written_part(call)
    x, source = alike(b, call, [b.value(call["self"]), source])
    size = x.shape[axis]
    before = [sliced(b, x, axis, 0, start)] if start else []
    after = [sliced(b, x, axis, end, size)] if end < size else []
    return concatenated(b, [*before, *([source] if end > start else []), *after], axis)


# -- padding with what is there ----------------------------------------------------------------------------------------


def _edge_pad(mode: str) -> Lower:
    """Rows that are there already, looked up."""

    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.value(call["self"])
        for axis, pair in enumerate(pads_of(call["padding"], x.rank)):
            if any(pair):
                places = np.pad(np.arange(x.shape[axis], dtype=np.int32), pair, mode=mode)  # type: ignore[call-overload]
                x = looked_up(b, x, axis, Value(b.constant(places), (0,)))
        return x

    return lower


# -- windows and diagonals ---------------------------------------------------------------------------------------------


def _diagonal(b: ProgramBuilder, call: Call) -> Value:
    """The elements along two axes at once: their places among the elements of both."""
    order, sizes, places = diagonal_of(call)
    flat = b.reshaped(b.stored(b.value(call["self"]), order), sizes)
    return sliced(b, Value(flat, identity(flat.rank)), len(sizes) - 1, places.start, places.stop, places.step)


def _unfold(b: ProgramBuilder, call: Call) -> Value:
    """Windows along an axis, each as a new last axis: looked up."""
    like = b.value(call["self"])
    x, size = as_numbers(b, like), call["size"]
    axis, rank = axis_of(call["dimension"], x.rank), x.rank
    count = call.result.shape[axis]
    places = (np.arange(count)[:, None] * call["step"] + np.arange(size)).reshape(-1).astype(np.int32)
    found = b.dense(looked_up(b, x, axis, Value(b.constant(places), (0,))))
    made = b.reshaped(found, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
    # The program's axes of what lies in memory: the window is the last.
    order = (*range(axis + 1), rank, *range(axis + 1, rank))
    return as_type(b, Value(made, order), like)


_MOVES: Final[dict[str, Any]] = {"passenger": True, "moves": True}

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("flip.default", _flip, ANY, **_MOVES),
    row("copy.default", _copy, ANY, same_dtypes(), **_MOVES),
    row(
        "slice_scatter.default",
        _slice_scatter,
        ANY,
        same_dtypes(),
        no_gaps(),
        has_axes("self"),
        overwritten_is_read,
        **_MOVES,
    ),
    row("select_scatter.default", _select_scatter, ANY, same_dtypes(), has_axes("self"), overwritten_is_read, **_MOVES),
    row("diagonal_copy.default", _diagonal, ANY, **_MOVES),
    row("unfold_copy.default", _unfold, ANY, has_axes("self"), **_MOVES),
    *(
        row(f"{mode}_pad{axes}d.default", _edge_pad(how), REAL, padding_outwards(), keep=True, **_MOVES)
        for mode, how in (("reflection", "reflect"), ("replication", "edge"))
        for axes in (1, 2, 3)
    ),
)
