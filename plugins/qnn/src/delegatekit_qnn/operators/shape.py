"""Operators that move elements, or make constant ones: views, slices, joins, pads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, pads_of
from delegatekit_toolkit.constraints import has_axes, same_dtypes
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.narrowing import numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.encodings import activation_fault, activation_type
from ..ir.graph import Scalar, Tensor
from ..ir.types import INNER, DataType, half
from ..ir.values import Value
from .common import ANY, as_numbers, as_type, overwritten_is_read, tile
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


def tiled(b: ProgramBuilder, tensor: Tensor, counts: list[int]) -> Tensor:
    """A tensor repeated so many times along each axis."""
    if set(counts) == {1}:
        return tensor
    if tensor.data is not None:
        return b.constant(np.tile(tensor.data, counts), tensor.datatype, tensor.encoding)
    if tensor.rank < 5:
        return tile(b, tensor, counts)
    # The processor repeats along four axes at most.
    runs = _repeated_alike(tensor.shape, counts)
    if len(runs) > 4:
        for axis, count in enumerate(counts):
            tensor = tiled(b, tensor, [count if at == axis else 1 for at in range(len(counts))])
        return tensor
    merged = b.reshaped(tensor, [math.prod(tensor.shape[axis] for axis in run) for run in runs])
    shape = [size * count for size, count in zip(tensor.shape, counts, strict=True)]
    return b.reshaped(tiled(b, merged, [math.prod(counts[axis] for axis in run) for run in runs]), shape)


def _repeated_alike(shape: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
    """Neighboring axes that can be repeated as one: all stay, or all are repeated and only the last has elements."""
    runs: list[list[int]] = []
    for axis, (size, count) in enumerate(zip(shape, counts, strict=True)):
        last = runs[-1] if runs else []
        stays = all(counts[at] == 1 for at in last)
        single = all(shape[at] == 1 for at in last)
        if last and (size == count == 1 or (stays if count == 1 else single)):
            last.append(axis)
        else:
            runs.append([axis])
    return runs


def _repeat(b: ProgramBuilder, call: Call) -> Value:
    x = _source(b, call)
    repeats = list(call["repeats"])
    tensor = b.reshaped(b.dense(x), (1,) * (len(repeats) - x.rank) + x.shape)
    return Value(tiled(b, tensor, repeats or [1]), identity(len(repeats)))


def sliced(b: ProgramBuilder, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
    """The part of a value along an axis."""
    if end - start <= step:
        # Of one element: the library fails at steps that are larger than the axis.
        end, step = min(end, start + 1), 1
    if (start, end, step) == (0, x.shape[axis], 1):
        return x
    like, x = x, as_numbers(b, x)
    tensor, place = x.tensor, x.stored_axis(axis)
    if tensor.data is not None:
        taken = np.take(tensor.data, np.arange(start, end, step), place)
        return as_type(b, Value(b.constant(taken, tensor.datatype, tensor.encoding), x.order), like)
    ranges = [[0, size, 1] for size in tensor.shape]
    ranges[place] = [start, end, step]
    shape = list(tensor.shape)
    shape[place] = -(-(end - start) // step)
    array = np.array(ranges, dtype=np.int32)
    made = b.emit("StridedSlice", [tensor], shape, tensor.datatype, tensor.encoding, ranges=array)
    return as_type(b, Value(made, x.order), like)


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


def dropped(b: ProgramBuilder, x: Value, axis: int) -> Value:
    """A value without an axis of size 1."""
    order = tuple(item - (item > axis) for item in x.order if item != axis)
    shape = [size for place, size in enumerate(x.tensor.shape) if x.order[place] != axis]
    return Value(b.reshaped(x.tensor, shape), order)


def inserted(b: ProgramBuilder, x: Value, axis: int) -> Value:
    """A value with a new axis of size 1."""
    order = (axis, *(item + (item >= axis) for item in x.order))
    shape = (1, *(x.tensor.shape if x.rank else ()))
    return Value(b.reshaped(x.tensor, shape), order)


def _unsqueeze(b: ProgramBuilder, call: Call) -> Value:
    x = _source(b, call)
    tensor = b.reshaped(b.dense(x), call.result.shape)
    return Value(tensor, identity(call.result.rank))


def concatenated(b: ProgramBuilder, parts: list[Value], axis: int) -> Value:
    """Values one after the other along an axis."""
    if len(parts) == 1:
        return parts[0]
    order = next((item.order for item in parts if item.tensor.data is None), parts[0].order)
    tensors = [b.stored(item, order) for item in parts]
    place = order.index(axis)
    shape = list(tensors[0].shape)
    shape[place] = sum(item.shape[place] for item in tensors)
    first = tensors[0]
    made = b.emit("Concat", tensors, shape, first.datatype, first.encoding, axis=Scalar(DataType.UINT32, place))
    return Value(made, order)


def _concatenate(b: ProgramBuilder, call: Call) -> Value:
    values = [b.value(item) for item in call["tensors"]]
    values = [item for item in values if item.shape != (0,)]
    axis = axis_of(call["dim"], call.result.rank)
    return concatenated(b, alike(b, call, values), axis)


def alike(b: ProgramBuilder, call: Call, values: list[Value]) -> list[Value]:
    """Values all as floats, or all as integers of the result's encoding."""
    if not any(item.is_fixed for item in values):
        return values
    quantization = call.result.quantization
    if activation_fault(quantization) is None and all(item.is_fixed for item in values):
        assert quantization is not None
        return [b.quantized(item, *activation_type(quantization)) for item in values]
    if len({(item.tensor.datatype, item.tensor.encoding) for item in values}) == 1:
        return values
    return [b.floats(item) for item in values]


def _full(b: ProgramBuilder, call: Call) -> Value:
    shape = tuple(call.result.shape)
    datatype = INNER[call.result.dtype]
    number = call["fill_value"] if call.has("fill_value") else call["value"]
    data = np.full(shape or (1,), half(number) if datatype.is_float else number, dtype=datatype.numpy)
    return Value(b.constant(data, datatype), identity(len(shape)))


def _pad(b: ProgramBuilder, call: Call) -> Value:
    # Negative amounts, which cut off, core has made slices of.
    return padded(b, _source(b, call), pads_of(call["pad"], call["self"].rank), call["value"] or 0)


def padded(b: ProgramBuilder, x: Value, pads: list[tuple[int, int]], value: float) -> Value:
    """A value with so many elements of a number more before and after, for each of the program's axes."""
    if not any(map(any, pads)):
        return x
    if x.is_fixed and value:
        x = b.floats(x)
    after_alone = not any(before for before, _ in pads) and sum(map(any, pads)) > 1
    if after_alone or not (x.is_fixed or x.tensor.datatype.is_float):
        # The library writes wrong rows where several axes get elements after theirs alone.
        return _joined_with(b, x, pads, value)
    last = x.order[-1]
    if not pads[last][0] and pads[last][1]:
        # It moves a function of one tensor behind a pad that ends the innermost axis: what is added passes through it.
        ends = [pad if axis == last else (0, 0) for axis, pad in enumerate(pads)]
        others = [pad if axis != last else (0, 0) for axis, pad in enumerate(pads)]
        return _joined_with(b, padded(b, x, others, value), ends, value)
    tensor = x.tensor
    stored = [pads[axis] for axis in x.order]
    shape = [size + sum(pad) for size, pad in zip(tensor.shape, stored, strict=True)]
    encoding = tensor.encoding
    number = Scalar(DataType.FLOAT32, half(value)) if encoding is None else Scalar(DataType.INT32, encoding.zero_point)
    made = b.emit(
        "Pad",
        [tensor],
        shape,
        tensor.datatype,
        encoding,
        scheme=Scalar(DataType.UINT32, 0),
        pad_amount=np.array(stored, dtype=np.uint32),
        pad_constant_value=number,
    )
    return Value(made, x.order)


def _joined_with(b: ProgramBuilder, x: Value, pads: list[tuple[int, int]], value: float) -> Value:
    """A value with constants before and after: also integers and booleans, which the processor does not pad."""
    datatype, encoding = x.tensor.datatype, x.tensor.encoding
    number = encoding.zero_point if encoding is not None else half(value) if datatype.is_float else value
    for axis, counts in enumerate(pads):
        parts = []
        for count in counts:
            shape = [count if at == axis else size for at, size in enumerate(x.shape)]
            data = np.full(shape, number, datatype.numpy)
            parts.append(b.constant(data, datatype, encoding) if count else None)
        before, after = ([Value(item, identity(x.rank))] if item is not None else [] for item in parts)
        x = concatenated(b, [*before, x, *after], axis)
    return x


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
