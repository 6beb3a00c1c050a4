"""Operators that move elements: views, permutations, slices, joins, repetitions, padding.

Most of them are passengers: a delegate of moves alone would only copy tensors.
"""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, diagonal_of, pads_of, written_part
from delegatekit_toolkit.constraints import has_axes, no_gaps, no_nan, padding_outwards, same_dtypes
from delegatekit_toolkit.expressions import fixed_axes
from delegatekit_toolkit.narrowing import numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from ..ir.sizes import is_fixed, size_of
from .common import (
    ANY,
    MOVED,
    NUMBERS,
    concatenated,
    copied,
    dropped,
    expanded,
    inserted,
    own,
    sliced,
    tensor,
    transposed,
)


def _view(b: ModelBuilder, call: Call) -> Value:
    return own(b, call, b.reshape(tensor(b, call), call.result.shape))


def _squeeze(b: ModelBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return own(b, call, dropped(b, x, {axis_of(dim, x.rank) for dim in call["dim"]} if x.rank else ()))


def _unsqueeze(b: ModelBuilder, call: Call) -> Value:
    return inserted(b, tensor(b, call), call["dim"] % call.result.rank)


def _permute(b: ModelBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return own(b, call, transposed(b, x, [axis_of(dim, x.rank) for dim in call["dims"]]))


def _expand(b: ModelBuilder, call: Call) -> Value:
    return own(b, call, expanded(b, tensor(b, call), call.result.shape))


def _copy(b: ModelBuilder, call: Call) -> Value:
    """The other tensor's elements, as large as the first and in its type."""
    source = b.cast(tensor(b, call, "src"), b.result_type(call))
    return own(b, call, expanded(b, source, call.result.shape), "src")


def _repeat(b: ModelBuilder, call: Call) -> Value:
    x, repeats = tensor(b, call), list(call["repeats"])
    if not repeats:
        return own(b, call, x)
    return b.declare(b.op("tile", x, b.sizes(repeats)), call.result.shape)


def _slice(b: ModelBuilder, call: Call) -> Value:
    x = tensor(b, call)
    axis = axis_of(call["dim"], x.rank)
    return own(b, call, sliced(b, x, axis, call["start"], call["end"], call["step"]))


def _select(b: ModelBuilder, call: Call) -> Value:
    x = tensor(b, call)
    axis = axis_of(call["dim"], x.rank)
    index = size_of(call["index"])
    if isinstance(index, int):
        made = b.op("gather", x, b.scalar(index), b.scalar(axis))
        return b.declare(made, [*x.shape[:axis], *x.shape[axis + 1 :]])
    assert index is not None
    return dropped(b, sliced(b, x, axis, index, index + 1), [axis])


def _flip(b: ModelBuilder, call: Call) -> Value:
    x = tensor(b, call)
    axes = sorted({axis_of(dim, x.rank) for dim in call["dims"]}) if x.rank else []
    if not axes:
        return own(b, call, x)
    least = torch.iinfo(torch.int64).min
    made = b.op(
        "slice",
        x,
        b.integers([-1] * len(axes)),
        b.integers([least] * len(axes)),
        b.integers([-1] * len(axes)),
        b.integers(axes),
    )
    return b.declare(made, x.shape)


def _concatenate(b: ModelBuilder, call: Call) -> Value:
    parts = [b.value(item) for item in call["tensors"]]
    made = concatenated(b, parts, axis_of(call["dim"], call.result.rank))
    if len(parts) > 1:
        return made
    return copied(b, made)


def _full(b: ModelBuilder, call: Call) -> Value:
    return expanded(b, b.number(call["fill_value"], b.result_type(call)), call["size"])


# -- writing into a copy -----------------------------------------------------------------------------------------------


def _slice_scatter(b: ModelBuilder, call: Call) -> Value:
    return _overwritten(b, call, tensor(b, call, "src"))


def _select_scatter(b: ModelBuilder, call: Call) -> Value:
    return _overwritten(b, call, inserted(b, tensor(b, call, "src"), written_part(call)[0]))


def _overwritten(b: ModelBuilder, call: Call, source: Value) -> Value:
    """With a source in the place of a part."""
    x = tensor(b, call)
    axis, start, end = written_part(call)
    size = call["self"].shape[axis]
    if (start, end) == (0, size):
        return copied(b, source)
    before = [sliced(b, x, axis, 0, start)] if start > 0 else []
    after = [sliced(b, x, axis, end, size)] if end < size else []
    return concatenated(b, [*before, source, *after], axis)


# -- padding -----------------------------------------------------------------------------------------------------------


def _pad(mode: str) -> Lower:
    def lower(b: ModelBuilder, call: Call) -> Value:
        x = tensor(b, call)
        pads = pads_of(call["pad"] if mode == "constant" else call["padding"], x.rank)
        before, after = (b.integers([pair[which] for pair in pads]) for which in (0, 1))
        more = [b.number(call["value"], x.dtype)] if mode == "constant" else []
        return b.declare(b.op("pad", x, before, after, mode, *more), call.result.shape)

    return lower


def _unfold(b: ModelBuilder, call: Call) -> Value:
    """Windows along an axis, each as a new last axis: looked up."""
    x, size, step = tensor(b, call), call["size"], call["step"]
    axis = axis_of(call["dimension"], x.rank)
    count, last = call.result.shape[axis], x.rank
    places = torch.arange(count)[:, None] * step + torch.arange(size)
    found = b.op("gather", x, b.constant(places), b.scalar(axis))
    shape = [*x.shape[:axis], count, size, *x.shape[axis + 1 :]]
    return transposed(b, b.declare(found, shape), [*range(axis + 1), *range(axis + 2, last + 1), axis + 1])


def _diagonal(b: ModelBuilder, call: Call) -> Value:
    """The elements along two axes at once: their places among the elements of both."""
    order, sizes, places = diagonal_of(call)
    flat = b.reshape(transposed(b, tensor(b, call), order), sizes)
    return own(b, call, sliced(b, flat, len(sizes) - 1, places.start, places.stop, places.step))


def fixed_bounds(call: Call) -> str | None:
    """Steps of a slice are whole where bounds change."""
    bounds = (call["start"], call["end"])
    return None if call["step"] == 1 or all(map(is_fixed, bounds)) else f"step = {call['step']} of changing bounds"


# -- the rows ----------------------------------------------------------------------------------------------------------

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("view_copy.default", _view, MOVED, passenger=True, sizes=("size",)),
    row("squeeze_copy.dims", _squeeze, MOVED, passenger=True),
    row("unsqueeze_copy.default", _unsqueeze, MOVED, passenger=True),
    row("permute_copy.default", _permute, MOVED, passenger=True),
    row("expand_copy.default", _expand, MOVED, passenger=True, sizes=("size",)),
    row("copy.default", _copy, ANY, passenger=True),
    row("repeat.default", _repeat, MOVED, passenger=True, sizes=("repeats",)),
    row("flip.default", _flip, MOVED, passenger=True),
    row("unfold_copy.default", _unfold, MOVED, has_axes("self"), fixed_axes("self", "dimension"), passenger=True),
    row(
        "diagonal_copy.default",
        _diagonal,
        MOVED,
        fixed_axes("self", "dim1"),
        fixed_axes("self", "dim2"),
        passenger=True,
    ),
    row("select_copy.int", _select, MOVED, has_axes("self"), passenger=True, sizes=("index",)),
    row("slice_copy.Tensor", _slice, MOVED, has_axes("self"), fixed_bounds, passenger=True, sizes=("start", "end")),
    row("cat.default", _concatenate, MOVED, same_dtypes(), passenger=True),
    row("full.default", _full, NUMBERS, numbers_fit, passenger=True, sizes=("size",)),
    row("slice_scatter.default", _slice_scatter, MOVED, same_dtypes(), no_gaps(), fixed_axes("self"), passenger=True),
    row("select_scatter.default", _select_scatter, MOVED, same_dtypes(), fixed_axes("self"), passenger=True),
    row("constant_pad_nd.default", _pad("constant"), NUMBERS, numbers_fit, no_nan(), has_axes("self"), passenger=True),
    *(
        row(f"{mode}ion_pad{axes}d.default", _pad(name), NUMBERS, padding_outwards(), keep=True)
        for mode, name in (("reflect", "reflect"), ("replicat", "edge"))
        for axes in (1, 2, 3)
    ),
)
