"""Operators that move elements, or make constant ones: views, slices, joins, pads."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, pads_of
from delegatekit_toolkit.constraints import has_axes, same_dtypes
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.narrowing import numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.types import INNER, half
from ..ir.values import Value
from .common import ANY, overwritten_is_read
from .moves import alike, concatenated, dropped, padded, sliced, tiled
from .program import Lower, ProgramBuilder
from .windows import pads_within_windows


def _source(b: ProgramBuilder, call: Call, name: str = "self") -> Value:
    """A value that is moved as it is, integers with their encoding."""
    return b.value(call[name])


def _view(b: ProgramBuilder, call: Call) -> Value:
    x = _source(b, call)
    shape = tuple(call.result.shape)
    return Value(b.reshaped(b.dense(x), shape), identity(len(shape)))


def _permute(b: ProgramBuilder, call: Call) -> Value:
    x = _source(b, call)
    return x.permuted([axis_of(dim, x.rank) for dim in call["dims"]])


def _expand(b: ProgramBuilder, call: Call) -> Value:
    x = _source(b, call)
    shape = tuple(call.result.shape)
    tensor = b.reshaped(b.dense(x), (1,) * (len(shape) - x.rank) + x.shape)
    counts = [new if old == 1 else 1 for new, old in zip(shape, tensor.shape, strict=True)] if shape else [1]
    return Value(tiled(b, tensor, counts), identity(len(shape)))


def _repeat(b: ProgramBuilder, call: Call) -> Value:
    x = _source(b, call)
    repeats = list(call["repeats"])
    tensor = b.reshaped(b.dense(x), (1,) * (len(repeats) - x.rank) + x.shape)
    return Value(tiled(b, tensor, repeats or [1]), identity(len(repeats)))


def _slice(b: ProgramBuilder, call: Call) -> Value:
    x = _source(b, call)
    axis = axis_of(call["dim"], x.rank)
    size = x.shape[axis]
    start, end = (_bound(call[name], size, default) for name, default in (("start", 0), ("end", size)))
    return sliced(b, x, axis, start, end, call["step"])


def _bound(value: Any, size: int, default: int) -> int:
    if value is None:
        return default
    return int(min(max(value + size if value < 0 else value, 0), size))


def _select(b: ProgramBuilder, call: Call) -> Value:
    x = _source(b, call)
    axis = axis_of(call["dim"], x.rank)
    index = call["index"] % x.shape[axis]
    return dropped(b, sliced(b, x, axis, index, index + 1), axis)


def _unsqueeze(b: ProgramBuilder, call: Call) -> Value:
    x = _source(b, call)
    tensor = b.reshaped(b.dense(x), call.result.shape)
    return Value(tensor, identity(call.result.rank))


def _concatenate(b: ProgramBuilder, call: Call) -> Value:
    values = [b.value(item) for item in call["tensors"]]
    values = [item for item in values if item.shape != (0,)]
    axis = axis_of(call["dim"], call.result.rank)
    return concatenated(b, alike(b, call, values), axis)


def _full(b: ProgramBuilder, call: Call) -> Value:
    shape = tuple(call.result.shape)
    datatype = INNER[call.result.dtype]
    number = call["fill_value"] if call.has("fill_value") else call["value"]
    data = np.full(shape or (1,), half(number) if datatype.is_float else number, dtype=datatype.numpy)
    return Value(b.constant(data, datatype), identity(len(shape)))


def _pad(b: ProgramBuilder, call: Call) -> Value:
    # Negative amounts, which cut off, core has made slices of.
    return padded(b, _source(b, call), pads_of(call["pad"], call["self"].rank), call["value"] or 0)


_MOVES: Final[dict[str, Any]] = {"passenger": True, "moves": True}

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("view_copy.default squeeze_copy.dims", _view, ANY, **_MOVES),
    row("unsqueeze_copy.default", _unsqueeze, ANY, **_MOVES),
    row("permute_copy.default", _permute, ANY, **_MOVES),
    row("expand_copy.default", _expand, ANY, **_MOVES),
    row("repeat.default", _repeat, ANY, **_MOVES),
    row("select_copy.int", _select, ANY, has_axes("self"), **_MOVES),
    row("slice_copy.Tensor", _slice, ANY, has_axes("self"), **_MOVES),
    row("cat.default", _concatenate, ANY, same_dtypes(), **_MOVES),
    row("constant_pad_nd.default", _pad, ANY, has_axes("self"), pads_within_windows, **_MOVES),
    row("full.default", _full, ANY, numbers_fit, passenger=True),
    row("fill.Scalar", _full, ANY, numbers_fit, overwritten_is_read, passenger=True),
)
