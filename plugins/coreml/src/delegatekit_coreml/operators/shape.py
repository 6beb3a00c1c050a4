"""Operators that move elements: views, permutations, slices, joins, repetitions, padding.

Most of them are passengers: a delegate of moves alone would only copy tensors to the device and back.
"""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, diagonal_of, pads_of, written_part
from delegatekit_toolkit.constraints import has_axes, no_gaps, no_nan, padding_outwards, same_dtypes
from delegatekit_toolkit.expressions import expression_of, fixed_axes
from delegatekit_toolkit.narrowing import numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of, numbers
from ..ir.types import DataType
from ..targets import IOS18
from .common import (
    ANY,
    FLOATS,
    NUMBERS,
    REAL,
    concatenated,
    copied,
    expanded,
    reshaped,
    sliced,
    tensor,
    updated,
)
from .program import Lower, ProgramBuilder


def _view(b: ProgramBuilder, call: Call) -> Var:
    return _distinct(b, call, reshaped(b, tensor(b, call), call.result.shape))


def _distinct(b: ProgramBuilder, call: Call, value: Var, name: str = "self") -> Var:
    """A result is a value of its own."""
    return copied(b, value) if value is tensor(b, call, name) else value


def _squeeze(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    axes = sorted({axis_of(dim, len(x.shape)) for dim in call["dim"]})
    return b.call("squeeze", x=x, axes=numbers(axes)) if axes and x.shape else copied(b, x)


def _unsqueeze(b: ProgramBuilder, call: Call) -> Var:
    return b.call("expand_dims", x=tensor(b, call), axes=numbers([call["dim"] % call.result.rank]))


def _permute(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    order = [axis_of(dim, len(x.shape)) for dim in call["dims"]]
    return b.call("transpose", x=x, perm=numbers(order)) if order else copied(b, x)


def _expand(b: ProgramBuilder, call: Call) -> Var:
    return _distinct(b, call, expanded(b, tensor(b, call), call.result.shape))


def _copy(b: ProgramBuilder, call: Call) -> Var:
    """The other tensor's elements, as large as the first and in its type."""
    source = b.cast(tensor(b, call, "src"), b.result_type(call))
    return _distinct(b, call, expanded(b, source, call.result.shape), "src")


def _repeat(b: ProgramBuilder, call: Call) -> Var:
    x, repeats = tensor(b, call), list(call["repeats"])
    x = reshaped(b, x, (1,) * (len(repeats) - len(x.shape)) + tuple(x.shape))
    return b.tile(x, repeats) if repeats else copied(b, x)


def _slice(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    axis = axis_of(call["dim"], len(x.shape))
    # Core has made places within the size of both bounds.
    return _distinct(b, call, sliced(b, x, axis, call["start"], call["end"], call["step"]))


def _select(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    axis = axis_of(call["dim"], len(x.shape))
    index = expression_of(call["index"])
    if isinstance(index, int):
        index = axis_of(index, x.shape[axis])
    return b.call("squeeze", x=sliced(b, x, axis, index, index + 1), axes=numbers([axis]))


def _flip(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    axes = sorted({axis_of(dim, len(x.shape)) for dim in call["dims"]})
    return b.call("reverse", x=x, axes=numbers(axes)) if axes and x.shape else copied(b, x)


def _concatenate(b: ProgramBuilder, call: Call) -> Var:
    parts = [b.value(item) for item in call["tensors"]]
    found = concatenated(b, parts, axis_of(call["dim"], call.result.rank))
    return copied(b, found) if found in parts else found


def _full(b: ProgramBuilder, call: Call) -> Var:
    value = b.number(call["fill_value"], b.result_type(call))
    return b.call("fill", shape=numbers(call["size"]), value=value)


# -- writing into a copy -----------------------------------------------------------------------------------------------


def _slice_scatter(b: ProgramBuilder, call: Call) -> Var:
    return _overwritten(b, call, tensor(b, call, "src"))


def _select_scatter(b: ProgramBuilder, call: Call) -> Var:
    axis, _, _ = written_part(call)
    return _overwritten(b, call, b.call("expand_dims", x=tensor(b, call, "src"), axes=numbers([axis])))


def _overwritten(b: ProgramBuilder, call: Call, source: Var) -> Var:
    """With a source, which has elements, in the place of a part."""
    x = tensor(b, call)
    axis, start, end = written_part(call)
    size = x.shape[axis]
    if (start, end) == (0, size):
        return copied(b, source)
    if b.target >= IOS18:
        return updated(b, x, axis, start, end, source)
    before = [sliced(b, x, axis, 0, start)] if start > 0 else []
    after = [sliced(b, x, axis, end, size)] if end < size else []
    return concatenated(b, [*before, source, *after], axis)


# -- padding -----------------------------------------------------------------------------------------------------------


def _pad(b: ProgramBuilder, call: Call) -> Var:
    x, value = tensor(b, call), call["value"]
    result = datatype_of(x)
    if not result.is_float:
        # MIL pads floating-point numbers only; float32 has these integers.
        x = b.cast(x, DataType.FLOAT32)
    # Negative amounts, which cut off, core has made slices of.
    added = [pad for pair in pads_of(call["pad"], x.rank) for pad in pair]
    if any(added):
        number = b.number(float(value), datatype_of(x))
        x = b.call("pad", x=x, pad=numbers(added), constant_val=number)
    return _distinct(b, call, b.cast(x, result))


def exact_integers(call: Call) -> str | None:
    """Floating-point numbers or booleans: MIL pads no integers."""
    name = call["self"].dtype_name
    return None if name in (*FLOATS, "bool") else f"self is {name}: MIL pads floating-point numbers"


def _edge_pad(mode: str) -> Lower:
    """MIL pads the last two axes in these modes: a third one changes places with the last."""

    def lower(b: ProgramBuilder, call: Call) -> Var:
        x, pads = tensor(b, call), pads_of(call["padding"], call["self"].rank)
        rank = len(x.shape)
        last = [pad for pair in ((0, 0),) * (rank - 2) + tuple(pads[-2:]) for pad in pair][-2 * rank :]
        if any(last):
            x = b.call("pad", x=x, pad=numbers(last), mode=mode)
        if not any(map(any, pads[-3:-2])):
            return _distinct(b, call, x)
        order = [*range(rank - 3), rank - 1, rank - 2, rank - 3]
        x = b.call("transpose", x=x, perm=numbers(order))
        x = b.call("pad", x=x, pad=numbers([0] * (2 * rank - 2) + list(pads[-3])), mode=mode)
        return b.call("transpose", x=x, perm=numbers(order))

    return lower


def _diagonal(b: ProgramBuilder, call: Call) -> Var:
    """The elements along two axes at once: their places among the elements of both."""
    order, sizes, places = diagonal_of(call)
    flat = reshaped(b, b.call("transpose", x=tensor(b, call), perm=numbers(order)), sizes)
    return _distinct(b, call, sliced(b, flat, len(sizes) - 1, places.start, places.stop, places.step))


def _unfold(b: ProgramBuilder, call: Call) -> Var:
    """Windows along an axis, each as a new last axis: looked up."""
    x, size, step = tensor(b, call), call["size"], call["step"]
    axis = axis_of(call["dimension"], len(x.shape))
    count, rank = call.result.shape[axis], len(x.shape)
    places = (torch.arange(count)[:, None] * step + torch.arange(size)).reshape(-1)
    datatype = datatype_of(x)
    found = b.cast(x, DataType.INT32) if datatype is DataType.BOOL else x
    found = b.call("gather", x=found, indices=b.constant(places), axis=numbers([axis])[0])
    found = reshaped(b, found, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
    order = [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]
    return b.cast(b.call("transpose", x=found, perm=numbers(order)), datatype)


# -- the rows ----------------------------------------------------------------------------------------------------------

_MATRIX: Final = (fixed_axes("self", "dim1"), fixed_axes("self", "dim2"))
ROWS: Final[tuple[Row[Lower], ...]] = (
    row("view_copy.default", _view, ANY, passenger=True, sizes=("size",)),
    row("squeeze_copy.dims", _squeeze, ANY, passenger=True),
    row("unsqueeze_copy.default", _unsqueeze, ANY, passenger=True),
    row("permute_copy.default", _permute, ANY, passenger=True),
    row("expand_copy.default", _expand, ANY, passenger=True, sizes=("size",)),
    row("copy.default", _copy, ANY, passenger=True),
    row("repeat.default", _repeat, ANY, passenger=True, sizes=("repeats",)),
    row("flip.default", _flip, ANY, passenger=True),
    row("diagonal_copy.default", _diagonal, ANY, *_MATRIX, passenger=True),
    row("unfold_copy.default", _unfold, ANY, has_axes("self"), fixed_axes("self", "dimension"), passenger=True),
    row("select_copy.int", _select, ANY, has_axes("self"), passenger=True, sizes=("index",)),
    row("slice_copy.Tensor", _slice, ANY, has_axes("self"), passenger=True, sizes=("start", "end")),
    row("cat.default", _concatenate, ANY, same_dtypes(), passenger=True),
    row("full.default", _full, NUMBERS, numbers_fit, no_nan(), passenger=True),
    row("slice_scatter.default", _slice_scatter, ANY, same_dtypes(), no_gaps(), fixed_axes("self"), passenger=True),
    row("select_scatter.default", _select_scatter, ANY, same_dtypes(), fixed_axes("self"), passenger=True),
    row("constant_pad_nd.default", _pad, exact_integers, no_nan(), has_axes("self"), passenger=True),
    *(
        row(f"{mode}ion_pad{axes}d.default", _edge_pad(name), REAL, padding_outwards(), keep=True)
        for mode, name in (("reflect", "reflect"), ("replicat", "replicate"))
        for axes in (1, 2, 3)
    ),
)
