"""Reductions that several families write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from delegatekit_toolkit.layout import identity

from ..ir.graph import Encoding, Scalar, uint32
from ..ir.types import DataType
from ..ir.values import Value
from .common import binary
from .moves import concatenated, dropped, sliced
from .program import ProgramBuilder


def flag(value: object) -> Scalar:
    """A boolean as a parameter."""
    return Scalar(DataType.BOOL, bool(value))


def reduced(
    b: ProgramBuilder,
    kind: str,
    x: Value,
    axes: tuple[int, ...],
    keep: bool,
    result: tuple[DataType, Encoding | None],
) -> Value:
    """A value reduced along some of the program's axes."""
    if x.tensor.rank > 4 and (kind in ("ReduceMax", "ReduceMin") or result[1] is None):
        return _reduced_one_by_one(b, kind, x, axes, keep, result)
    stored = sorted(x.stored_axis(axis) for axis in axes)
    shape = [1 if place in stored else size for place, size in enumerate(x.tensor.shape)]
    made = b.emit(kind, [x.tensor], shape, *result, axes=uint32(*stored), keep_dims=flag(True))
    if keep:
        return Value(made, x.order)
    order = tuple(axis for axis in x.order if axis not in axes)
    kept = [size for place, size in enumerate(shape) if place not in stored]
    ranks = tuple(sorted(order).index(axis) for axis in order)
    return Value(b.reshaped(made, kept), ranks)


def _reduced_one_by_one(
    b: ProgramBuilder,
    kind: str,
    x: Value,
    axes: tuple[int, ...],
    keep: bool,
    result: tuple[DataType, Encoding | None],
) -> Value:
    """Each axis by itself, as the second of three: of five the library fails at some, or at what follows."""
    for axis in axes:
        shape, place = x.tensor.shape, x.stored_axis(axis)
        parts = around(shape, place)
        made = b.emit(
            kind,
            [b.reshaped(x.tensor, parts)],
            [parts[0], 1, parts[2]],
            *result,
            axes=uint32(1),
            keep_dims=flag(True),
        )
        kept = [1 if at == place else size for at, size in enumerate(shape)]
        x = Value(b.reshaped(made, kept), x.order)
    for axis in () if keep else sorted(axes, reverse=True):
        x = dropped(b, x, axis)
    return x


def around(shape: Sequence[int], axis: int) -> list[int]:
    """A shape with an axis, and all before it and all after it as one each."""
    return [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]


def halved(b: ProgramBuilder, kind: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """A value reduced by an operation on the halves of each axis, until one element is left.

    The axis is the second of three: the library's compiler fails at halves of the first.
    """
    for axis in axes:
        shape, place, order = x.tensor.shape, x.stored_axis(axis), x.order
        x = Value(b.reshaped(x.tensor, around(shape, place)), identity(3))
        while (size := x.shape[1]) > 1:
            half = size // 2
            first, second = sliced(b, x, 1, 0, half), sliced(b, x, 1, half, 2 * half)
            joined = binary(b, kind, first, second)
            x = concatenated(b, [joined, sliced(b, x, 1, size - 1, size)], 1) if size % 2 else joined
        x = Value(b.reshaped(x.tensor, [1 if at == place else kept for at, kept in enumerate(shape)]), order)
    for axis in () if keep else sorted(axes, reverse=True):
        x = dropped(b, x, axis)
    return x


def rows_of_last(shape: Sequence[int]) -> tuple[int, ...]:
    """All but the last axis as one."""
    return (math.prod(shape[:-1]), shape[-1])


EQUAL: Final = "which of equal elements comes first, and where NaN comes, depends on the device"
