"""Moves of elements that several families write: slices, joins, repetitions, padding, look-ups."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of_indices, indices_of
from delegatekit_toolkit.layout import identity

from ..ir.encodings import activation_fault, activation_type
from ..ir.graph import Scalar, Tensor
from ..ir.types import DataType, half
from ..ir.values import Value
from .common import add, as_numbers, as_type, broadcast, compared, lesser, mul, tile, where
from .program import ProgramBuilder


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


def looked_up(b: ProgramBuilder, x: Value, axis: int, indices: Value) -> Value:
    """Slices along an axis, by their places, whose axes stand for it."""
    like, x = x, as_numbers(b, x)
    source, places = b.dense(x), b.dense(indices)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    before, after = source.shape[:axis], source.shape[axis + 1 :]
    if x.rank > 4:
        # Of five axes, of which some have one element, the library looks nothing up.
        before, after = (math.prod(before),), (math.prod(after),)
        source = b.reshaped(source, (*before, x.shape[axis], *after))
    count = math.prod(indices.shape)
    made = b.emit(
        "Gather",
        [source, b.reshaped(places, (count,))],
        (*before, count, *after),
        source.datatype,
        source.encoding,
        axis=Scalar(DataType.INT32, len(before)),
    )
    return as_type(b, Value(b.reshaped(made, shape), identity(len(shape))), like)


def something_indexed(call: Call) -> str | None:
    """At least one axis is indexed."""
    return None if indices_of(call) else "nothing is indexed"


def from_front(b: ProgramBuilder, operand: Operand, size: int) -> Value:
    """Indices counted from the front. One beyond the end is that of the last element: the processor checks none."""
    known = operand.constant
    if known is not None:
        array = known.numpy()
        return Value(b.constant(np.where(array < 0, array + size, array).astype(np.int32)), identity(operand.rank))
    indices = b.value(operand)
    return lesser(b, where(b, compared(b, "Less", indices, 0), add(b, indices, size), indices), size - 1)


def rows_of(b: ProgramBuilder, x: Value, found: dict[int, Operand]) -> Value:
    """The rows that PyTorch's indices name, with the axes up to the last indexed one as one axis.

    The result's axes are those that PyTorch has in the place of these axes.
    """
    shared = broadcast(*(item.shape for item in found.values()))
    last = max(found)
    free = [axis for axis in range(last) if axis not in found]
    start = axis_of_indices(found)
    rank = len(shared) + len(free)
    places = {axis: at if at < start else at + len(shared) for at, axis in enumerate(free)}
    rows: Value | None = None
    fixed = np.zeros((1,) * rank, np.int32)
    for axis in range(last + 1):
        step = math.prod(x.shape[axis + 1 : last + 1])
        if axis in places:
            counts = (np.arange(x.shape[axis]) * step).reshape([-1 if at == places[axis] else 1 for at in range(rank)])
            fixed = fixed + counts
            continue
        index = from_front(b, found[axis], x.shape[axis])
        shape = (1,) * start + (1,) * (len(shared) - index.rank) + index.shape + (1,) * (rank - start - len(shared))
        part = Value(b.reshaped(b.dense(index), shape), identity(rank))
        if part.tensor.data is not None:
            fixed = fixed + part.tensor.data.astype(np.int64) * step
            continue
        part = part if step == 1 else mul(b, part, step)
        rows = part if rows is None else add(b, rows, part)
    known = Value(b.constant(fixed.astype(np.int32)), identity(rank))
    if rows is None:
        return known
    return add(b, rows, known) if fixed.any() or fixed.size > 1 else rows
