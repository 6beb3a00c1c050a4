"""Operators that only move values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of, pads_of
from delegatekit_toolkit.support import row
from delegatekit_toolkit.tosa import Pad, Reverse, Tile
from delegatekit_toolkit.tosa.types import INTEGER_RANGES

from ..limits import MAX_RANK
from ..program import ProgramBuilder
from ..values import CHANNELS_LAST, Result, Scale, Value
from .common import Rows


def _source(b: ProgramBuilder, call: Call) -> tuple[Value, Scale]:
    operand: Operand = call["self"]
    return b.integers(operand), b.scale(operand)


def _moved(b: ProgramBuilder, value: Value, before: Scale, result: Result) -> Value:
    """A moved value, in the result's integers."""
    return Value(b.requantized(value.tensor, before, result), value.order)


def _view(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, before = _source(b, call)
    return _moved(b, b.view(value, call.result.shape), before, result)


def _permute(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, before = _source(b, call)
    dims = [axis_of(dim, len(value.order)) for dim in call["dims"]]
    return _moved(b, value.permuted(dims), before, result)


def _slice(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, before = _source(b, call)
    axis, start, step = axis_of(call["dim"], len(value.order)), call["start"], call["step"]
    kept, place = call.result.shape[axis], value.stored_axis(axis)
    if step == 1:
        return _moved(b, _part(b, value, place, start, kept), before, result)
    # Every step-th: rows of step elements, of which the first one is kept.
    tensor = value.tensor
    rows = min(kept, (value.shape[axis] - start) // step)
    parts = []
    if rows:
        taken = _part(b, value, place, start, rows * step).tensor
        shape = tensor.shape
        outer, inner = _with_room(shape, place)
        cut = b.reshaped(taken, (*outer, rows, step, *inner))
        sizes = [*outer, rows, 1, *inner]
        first = b.sliced(cut, [0] * len(sizes), sizes)
        parts.append(b.reshaped(first, (*shape[:place], rows, *shape[place + 1 :])))
    if rows < kept:
        parts.append(_part(b, value, place, start + rows * step, 1).tensor)
    return _moved(b, Value(b.joined(parts, place, "joined"), value.order), before, result)


def _with_room(shape: Sequence[int], place: int) -> tuple[list[int], list[int]]:
    """The sizes before an axis and after it; two neighbors are merged if there is no room for another axis."""
    sides = list(shape[:place]), list(shape[place + 1 :])
    if len(shape) == MAX_RANK:
        pairs = [(side, at) for side in sides for at in range(len(side) - 1)]
        side, at = min(pairs, key=lambda pair: math.prod(pair[0][pair[1] : pair[1] + 2]))
        side[at : at + 2] = [math.prod(side[at : at + 2])]
    return sides


def _part(b: ProgramBuilder, value: Value, place: int, start: int, size: int) -> Value:
    """Neighbors along a stored axis."""
    starts, sizes = [0] * len(value.order), list(value.tensor.shape)
    starts[place], sizes[place] = start, size
    return Value(b.sliced(value.tensor, starts, sizes), value.order)


def _select(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, before = _source(b, call)
    axis = axis_of(call["dim"], len(value.order))
    part = _part(b, value, value.stored_axis(axis), call["index"], 1)
    return _moved(b, b.view(part, call.result.shape), before, result)


def _cat(b: ProgramBuilder, call: Call, result: Result) -> Value:
    operands = [item for item in call["tensors"] if math.prod(item.shape)]
    return _side_by_side(b, call, operands, [b.integers(item) for item in operands], result)


def _stack(b: ProgramBuilder, call: Call, result: Result) -> Value:
    operands, shape = call["tensors"], list(call.result.shape)
    shape[axis_of(call["dim"], len(shape))] = 1
    return _side_by_side(b, call, operands, [b.view(b.integers(item), shape) for item in operands], result)


def _side_by_side(
    b: ProgramBuilder, call: Call, operands: Sequence[Operand], values: Sequence[Value], result: Result
) -> Value:
    """Values concatenated along the axis `dim`, in the order of the largest to move, as integers of the result."""
    axis = axis_of(call["dim"], call.result.rank)
    leader = max(values, key=lambda value: (value.tensor.data is None, value.tensor.size))
    plain = Result(result.scale)
    parts = [
        b.requantized(b.stored(value, leader.order), b.scale(item), plain)
        for value, item in zip(values, operands, strict=True)
    ]
    made = b.joined(parts, leader.stored_axis(axis), "joined")
    return Value(b.clamped(made, result), leader.order)


def _roll(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, before = _source(b, call)
    shape, shifts, dims = value.shape, call["shifts"], call["dims"]
    if not dims:  # Of all elements, one after the other.
        value, dims = b.view(value, (math.prod(shape),)), [0]
    for shift, dim in zip(shifts, dims, strict=True):
        axis = axis_of(dim, len(value.order))
        place, size = value.stored_axis(axis), value.shape[axis]
        last = shift % size
        if last:
            parts = [_part(b, value, place, size - last, last).tensor, _part(b, value, place, 0, size - last).tensor]
            value = Value(b.joined(parts, place, "joined"), value.order)
    return _moved(b, b.view(value, shape), before, result)


def _pad(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, before = _source(b, call)
    amounts = pads_of(call["pad"], len(value.order))
    # Negative amounts, which crop, are slices already.
    stored = [amount for axis in value.order for amount in amounts[axis]]
    value = Value(b.requantized(value.tensor, before, Result(result.scale)), value.order)
    if any(stored):
        if value.order == (0, 1, 2, 3) and _is_convolved(call):
            # Moved first, so that the pad is directly before the convolution, which then absorbs it.
            value = Value(b.stored(value, CHANNELS_LAST), CHANNELS_LAST)
            stored = [amount for axis in value.order for amount in amounts[axis]]
        after = result.scale
        lowest, highest = INTEGER_RANGES[after.dtype]
        filler = round((call["value"] or 0) / after.scale) + after.zero_point
        operands = (value.tensor, b.sizes(stored), b.number(min(highest, max(lowest, filler)), after.dtype))
        sizes = zip(value.tensor.shape, stored[::2], stored[1::2], strict=True)
        made = b.emit(Pad(), operands, [sum(size) for size in sizes], after.dtype, "pad")
        value = Value(made, value.order)
    return Value(b.clamped(value.tensor, result), value.order)


def _is_convolved(call: Call) -> bool:
    """True if only convolutions read the result, after its quantize and their dequantizes."""
    readers = [reader for quantize in call.users for dequantize in quantize.users for reader in dequantize.users]
    return bool(readers) and all(reader.operator == "aten.convolution.default" for reader in readers)


def _expand(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, before = _source(b, call)
    shape = call.result.shape
    value = b.view(value, (*[1] * (len(shape) - len(value.order)), *value.shape))
    return _moved(
        b, _tiled(b, value, [new // old for old, new in zip(value.shape, shape, strict=True)]), before, result
    )


def _repeat(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, before = _source(b, call)
    repeats = call["repeats"]
    value = b.view(value, (*[1] * (len(repeats) - len(value.order)), *value.shape))
    return _moved(b, _tiled(b, value, repeats), before, result)


def _tiled(b: ProgramBuilder, value: Value, repeats: list[int]) -> Value:
    stored = [repeats[axis] for axis in value.order]
    if all(times == 1 for times in stored):
        return value
    shape = [size * times for size, times in zip(value.tensor.shape, stored, strict=True)]
    tensor = b.emit(Tile(), (value.tensor, b.sizes(stored)), shape, value.tensor.dtype, "tile")
    return Value(tensor, value.order)


def _flip(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, before = _source(b, call)
    for dim in call["dims"]:
        axis = axis_of(dim, len(value.order))
        value = _reversed(b, value, axis)
    return _moved(b, value, before, result)


def _reversed(b: ProgramBuilder, value: Value, axis: int) -> Value:
    """Reversed along one axis, as height of an image of one row's width: the NPU reverses H and W only."""
    place = value.stored_axis(axis)
    shape = value.tensor.shape
    outer, inner = 1, 1
    for size in shape[:place]:
        outer *= size
    for size in shape[place + 1 :]:
        inner *= size
    image = b.reshaped(value.tensor, (1, outer, shape[place], inner))
    turned = b.emit(Reverse(2), (image,), image.shape, image.dtype, "reverse")
    return Value(b.reshaped(turned, shape), value.order)


def _images(b: ProgramBuilder, value: Value) -> Value:
    """(..., C, H, W) as (N, C, H, W): with its pixels split, a tensor has no room for further axes."""
    *outer, channels, high, wide = value.shape
    return b.view(value, (math.prod(outer), channels, high, wide))


def _pixel_shuffle(b: ProgramBuilder, call: Call, result: Result) -> Value:
    source, before = _source(b, call)
    factor, value = call["upscale_factor"], _images(b, source)
    batch, channels, high, wide = value.shape
    channels //= factor**2
    cut = b.view(value, (batch, channels, factor, factor, high, wide))
    shuffled = b.view(cut.permuted((0, 1, 4, 2, 5, 3)), (batch, channels, high * factor, wide * factor))
    return _moved(b, b.view(shuffled, call.result.shape), before, result)


def _pixel_unshuffle(b: ProgramBuilder, call: Call, result: Result) -> Value:
    source, before = _source(b, call)
    factor, value = call["downscale_factor"], _images(b, source)
    batch, channels, high, wide = value.shape
    high, wide = high // factor, wide // factor
    cut = b.view(value, (batch, channels, high, factor, wide, factor))
    shuffled = b.view(cut.permuted((0, 1, 3, 5, 2, 4)), (batch, channels * factor**2, high, wide))
    return _moved(b, b.view(shuffled, call.result.shape), before, result)


ROWS: Rows = (
    row("view_copy.default unsqueeze_copy.default squeeze_copy.dims", _view, passenger=True),
    row("permute_copy.default", _permute, passenger=True),
    row("slice_copy.Tensor", _slice, passenger=True),
    row("select_copy.int", _select, passenger=True),
    row("cat.default", _cat, passenger=True),
    row("constant_pad_nd.default", _pad, passenger=True),
    row("expand_copy.default", _expand, passenger=True),
    row("repeat.default", _repeat, passenger=True),
    row("flip.default", _flip, passenger=True),
    row("stack.default", _stack, keep=True, passenger=True),
    row("roll.default", _roll, keep=True, passenger=True),
    row("pixel_shuffle.default", _pixel_shuffle, keep=True, passenger=True),
    row("pixel_unshuffle.default", _pixel_unshuffle, keep=True, passenger=True),
)
