"""Operators that move elements: views, permutations, slices, joins, repetitions, padding.

Most of them are passengers: a delegate of moves alone would only copy tensors.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, diagonal_of, pads_of
from delegatekit_toolkit.constraints import has_axes, padding_outwards, same_dtypes
from delegatekit_toolkit.expressions import fixed_axes, is_fixed
from delegatekit_toolkit.narrowing import fits_elements
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Value
from ..ir.sizes import size_of
from .common import (
    ANY,
    concatenated,
    dropped,
    expanded,
    inserted,
    sliced,
    taken,
    tensor,
    transposed,
    unary,
)


def _view(b: GraphBuilder, call: Call) -> Value:
    return b.reshape(tensor(b, call), call.result.shape)


def _squeeze(b: GraphBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return dropped(b, x, {axis_of(dim, x.rank) for dim in call["dim"]} if x.rank else ())


def _unsqueeze(b: GraphBuilder, call: Call) -> Value:
    return inserted(b, tensor(b, call), call["dim"] % call.result.rank)


def _permute(b: GraphBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return transposed(b, x, [axis_of(dim, x.rank) for dim in call["dims"]])


def _expand(b: GraphBuilder, call: Call) -> Value:
    return expanded(b, tensor(b, call), call.result.shape)


def _copy(b: GraphBuilder, call: Call) -> Value:
    """The other tensor's elements, as large as the first and in its type."""
    return expanded(b, b.cast(tensor(b, call, "src"), call.result.dtype), call.result.shape)


def _repeat(b: GraphBuilder, call: Call) -> Value:
    x, repeats = tensor(b, call), list(call["repeats"])
    return b.op(schema.TileNode, call.result.shape, x.dtype, x=x, reps=repeats) if repeats else x


def _slice(b: GraphBuilder, call: Call) -> Value:
    x = tensor(b, call)
    axis = axis_of(call["dim"], x.rank)
    return sliced(b, x, axis, call["start"], call["end"], call["step"], size=size_of(call.result.shape[axis]))


def _select(b: GraphBuilder, call: Call) -> Value:
    x = tensor(b, call)
    axis = axis_of(call["dim"], x.rank)
    shape = [*x.shape[:axis], *x.shape[axis + 1 :]]
    (place,) = b.terms([call["index"]])
    return b.op(schema.TakeNode, shape, x.dtype, x=x, index=place, axis=axis)


def _flip(b: GraphBuilder, call: Call) -> Value:
    x = tensor(b, call)
    axes = sorted({axis_of(dim, x.rank) for dim in call["dims"]}) if x.rank else []
    return unary(b, schema.FlipNode, x, axes=axes) if axes else x


def _concatenate(b: GraphBuilder, call: Call) -> Value:
    axis = axis_of(call["dim"], call.result.rank)
    parts = [b.cast(b.value(item), call.result.dtype) for item in call["tensors"]]
    return concatenated(b, parts, axis, size_of(call.result.shape[axis]))


def _full(b: GraphBuilder, call: Call) -> Value:
    return expanded(b, b.number(call["fill_value"], call.result.dtype), call["size"])


def _arange(b: GraphBuilder, call: Call) -> Value:
    start, stop, step = (call[name] for name in ("start", "end", "step"))
    made = b.op(schema.ARangeNode, call.result.shape, torch.int64, start=start, stop=stop, step=step, scalar_type=4)
    return b.cast(made, call.result.dtype)


# -- writing into a copy -----------------------------------------------------------------------------------------------


def _slice_scatter(b: GraphBuilder, call: Call) -> Value:
    x, source = tensor(b, call), tensor(b, call, "src")
    axis = axis_of(call["dim"], x.rank)
    start = 0 if call["start"] is None else call["start"]
    end = x.shape[axis] if call["end"] is None else call["end"]
    return _written(b, x, source, axis, start, end, call["step"])


def _select_scatter(b: GraphBuilder, call: Call) -> Value:
    x, source = tensor(b, call), tensor(b, call, "src")
    axis = axis_of(call["dim"], x.rank)
    index = size_of(call["index"])
    if isinstance(index, int) and index < 0:
        index = index + x.shape[axis]
    return _written(b, x, inserted(b, source, axis), axis, index, index + 1, 1)


def _written(b: GraphBuilder, x: Value, source: Value, axis: int, start: Any, end: Any, step: int) -> Value:
    fields = {"axis": axis, "start": size_of(start), "stop": size_of(end), "step": step}
    return b.op(schema.SliceUpdateNode, x.shape, x.dtype, dst=x, update=source, **fields)


# -- padding -----------------------------------------------------------------------------------------------------------


def _pad(b: GraphBuilder, call: Call) -> Value:
    """With a number around; negative padding cuts off."""
    x = tensor(b, call)
    pairs = pads_of(call["pad"], x.rank)
    for axis, (before, after) in enumerate(pairs):
        if before < 0 or after < 0:
            x = sliced(b, x, axis, max(-before, 0), x.shape[axis] + min(after, 0))
    flat = [max(number, 0) for both in pairs for number in both]
    if not any(flat):
        return x
    if isinstance(call["value"], int | float) and _is_exact(call["value"]):
        return b.op(
            schema.PadNode,
            call.result.shape,
            x.dtype,
            x=x,
            pad_width=flat,
            mode="constant",
            constant_value=float(call["value"]),
        )
    for axis, (before, after) in enumerate(pairs):
        around = []
        for count in (before, after):
            sizes = [*x.shape[:axis], max(count, 0), *x.shape[axis + 1 :]]
            around.append([expanded(b, b.number(call["value"], x.dtype), sizes)] if count > 0 else [])
        x = concatenated(b, [*around[0], x, *around[1]], axis)
    return x


def _is_exact(number: float) -> bool:
    """True for numbers that the graph's paddings hold, which are float32."""
    return not math.isfinite(number) or float(torch.tensor(number, dtype=torch.float32)) == number


def _bordered(mode: str) -> Lower:
    """With the border, or the image turned at it, around: looked up."""

    def lower(b: GraphBuilder, call: Call) -> Value:
        x = tensor(b, call)
        for axis, (before, after) in enumerate(pads_of(call["padding"], x.rank)):
            size = x.shape[axis]
            if before or after:
                assert isinstance(size, int)
                places = torch.arange(-before, size + after)
                if mode == "reflect":
                    places = (size - 1 - (places - (size - 1)).abs()).abs()
                x = taken(b, x, axis, b.constant(places.clamp(0, size - 1)))
        return x

    return lower


def fixed_image(call: Call) -> str | None:
    """Padded axes keep their sizes."""
    pairs = pads_of(call["padding"], call["self"].rank)
    changing = any(any(both) and not is_fixed(size) for both, size in zip(pairs, call["self"].shape, strict=True))
    return "the size of a padded axis changes from call to call" if changing else None


def _unfold(b: GraphBuilder, call: Call) -> Value:
    """Windows along an axis, each as a new last axis: looked up."""
    x, size, step = tensor(b, call), call["size"], call["step"]
    axis = axis_of(call["dimension"], x.rank)
    count, last = call.result.shape[axis], x.rank
    places = torch.arange(count)[:, None] * step + torch.arange(size)
    found = taken(b, x, axis, b.constant(places))
    return transposed(b, found, [*range(axis + 1), *range(axis + 2, last + 1), axis + 1])


def _diagonal(b: GraphBuilder, call: Call) -> Value:
    """The elements along two axes at once: their places among the elements of both."""
    order, sizes, places = diagonal_of(call)
    flat = b.reshape(transposed(b, tensor(b, call), order), sizes)
    return sliced(b, flat, len(sizes) - 1, places.start, places.stop, places.step)


def _triangle(kind: Any) -> Lower:
    return lambda b, call: unary(b, kind, tensor(b, call), k=call["diagonal"])


def fixed_step(call: Call) -> str | None:
    """The step is not 0, and known."""
    return None if isinstance(call["step"], int) and call["step"] else f"step = {call['step']}"


def whole_numbers(call: Call) -> str | None:
    """Bounds and step are integers."""
    for name in ("start", "end", "step"):
        if isinstance(call[name], float):
            return f"{name} = {call[name]} is not an integer"
    return (
        None if call.result.dtype_name in ("int64", "int32", "float32") else f"the result is {call.result.dtype_name}"
    )


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("view_copy.default", _view, ANY, passenger=True, sizes=("size",)),
    row("squeeze_copy.dims", _squeeze, ANY, passenger=True),
    row("unsqueeze_copy.default", _unsqueeze, ANY, passenger=True),
    row("permute_copy.default", _permute, ANY, passenger=True),
    row("expand_copy.default", _expand, ANY, passenger=True, sizes=("size",)),
    row("copy.default", _copy, ANY, passenger=True),
    row("repeat.default", _repeat, ANY, passenger=True, sizes=("repeats",)),
    row("flip.default", _flip, ANY, passenger=True),
    row("unfold_copy.default", _unfold, ANY, has_axes("self"), fixed_axes("self", "dimension"), passenger=True),
    row(
        "diagonal_copy.default", _diagonal, ANY, fixed_axes("self", "dim1"), fixed_axes("self", "dim2"), passenger=True
    ),
    row("select_copy.int", _select, ANY, has_axes("self"), passenger=True, sizes=("index",)),
    row("slice_copy.Tensor", _slice, ANY, has_axes("self"), passenger=True, sizes=("start", "end")),
    row("cat.default", _concatenate, ANY, passenger=True),
    row("full.default", _full, ANY, fits_elements, passenger=True, sizes=("size",)),
    row("arange.start_step", _arange, whole_numbers, fixed_step, passenger=True, sizes=("start", "end")),
    row(
        "slice_scatter.default",
        _slice_scatter,
        ANY,
        same_dtypes(),
        has_axes("self"),
        passenger=True,
        sizes=("start", "end"),
    ),
    row("select_scatter.default", _select_scatter, ANY, same_dtypes(), passenger=True, sizes=("index",)),
    row("constant_pad_nd.default", _pad, ANY, fits_elements, has_axes("self"), passenger=True),
    row("tril.default", _triangle(schema.TrilNode), ANY, passenger=True, keep=True),
    row("triu.default", _triangle(schema.TriuNode), ANY, passenger=True, keep=True),
    *(
        row(f"{mode}ion_pad{axes}d.default", _bordered(name), ANY, padding_outwards(), fixed_image, keep=True)
        for mode, name in (("reflect", "reflect"), ("replicat", "edge"))
        for axes in (1, 2, 3)
    ),
)
