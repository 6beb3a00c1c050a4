"""Sums, means, extremes and their positions, along any axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ...ir.types import DataType
from ..tape import Kernel, Reader, Tape, Value

#: Numbers of the operations in shaders/reduce.comp.
_SUM, _MAX, _MIN, _PRODUCT = range(4)

#: Fewer rows than this that are longer than `_LONG` are reduced in parts first.
_FEW, _LONG = 512, 1024


def _reduction(operation: int, *, mean: bool = False) -> Kernel:
    def kernel(tape: Tape, call: Reader) -> None:
        value = call.tensor(0)
        axes = call.axes(1, value.rank)
        target = tape.result(call.result, reduced_shape(value.shape, axes, keep=call.bool(2, False)))
        count = math.prod(value.shape[axis] for axis in axes) if value.rank else 1
        if value.is_float != target.is_float or (mean and not value.is_float):
            raise call.error("reduces numbers of one kind to another")
        if operation in (_MAX, _MIN) and not count:
            raise call.error(f"looks for the largest of no elements: {value.shape}")
        reduce(tape, operation, value, target, axes, divisor=float(count) if mean else None)

    return kernel


def reduced_shape(shape: Sequence[int], axes: Sequence[int], *, keep: bool) -> tuple[int, ...]:
    """The shape after axes are reduced to size 1, or gone."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)


def reduce(
    tape: Tape, operation: int, value: Value, target: Value, axes: Sequence[int], *, divisor: float | None = None
) -> None:
    """Dispatch a reduction: axes that lie together at once, from the last to the first; few long rows in parts."""
    steps = _steps(value.shape, axes) or [(value.count, 1, 1)]
    for index, (outer, size, inner) in enumerate(steps):
        parts = size
        if outer * inner < _FEW and size > _LONG:
            length = -(-math.isqrt(size) // 64) * 64
            value, parts = _dispatch(tape, operation, value, None, (outer, size, inner), length), -(-size // length)
        final = index == len(steps) - 1
        last, by = (target, divisor) if final else (None, None)
        value = _dispatch(tape, operation, value, last, (outer, parts, inner), parts, by)


def _dispatch(
    tape: Tape,
    operation: int,
    value: Value,
    target: Value | None,
    sizes: tuple[int, int, int],
    length: int,
    divisor: float | None = None,
) -> Value:
    outer, size, inner = sizes
    parts = -(-size // length) if size else 1
    count = outer * parts * inner
    made = target or tape.scratch((count,), DataType.FLOAT32 if value.is_float else DataType.INT32)
    push = (count, size, max(length, 1), parts, inner, divisor or 0.0)
    shader = "reduce_float" if value.is_float else "reduce_int"
    tape.dispatch(shader, (value, made), push, (made.is_half, operation, divisor is not None), items=count)
    return made


def _steps(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Each run of axes to reduce, from the last one: elements before it (of those left), in it, and after it.

    >>> _steps((2, 3, 4, 5), (1, 3)), _steps((2, 3), (0, 1))
    ([(24, 5, 1), (2, 3, 4)], [(1, 6, 1)])
    """
    sizes = list(shape)
    found = []
    end = len(sizes)
    while end > 0:
        if end - 1 not in axes:
            end -= 1
            continue
        start = end - 1
        while start > 0 and (start - 1 in axes or sizes[start - 1] == 1):
            start -= 1
        size = math.prod(sizes[start:end])
        if size != 1:
            found.append((math.prod(sizes[:start]), size, math.prod(sizes[end:])))
        sizes[start:end] = [1] * (end - start)
        end = start
    return found


def _position(*, least: bool) -> Kernel:
    def kernel(tape: Tape, call: Reader) -> None:
        value = call.tensor(0)
        axes = call.axes(1, value.rank)
        if len(axes) not in (1, value.rank):
            raise call.error(f"looks for a position along {len(axes)} axes")
        target = tape.result(call.result, reduced_shape(value.shape, axes, keep=call.bool(2, False)))
        steps = _steps(value.shape, axes) or [(value.count, 1, 1)]
        outer, size, inner = steps[0]
        if not size:
            raise call.error(f"looks for a position among no elements: {value.shape}")
        if target.is_float:
            raise call.error("gives positions that are not integers")
        constants = (False, least, not value.is_float)
        tape.dispatch("arg_reduce", (value, target), (outer * inner, size, inner), constants, items=outer * inner)

    return kernel


KERNELS: Final[dict[str, Kernel]] = {
    "aten.mean.dim": _reduction(_SUM, mean=True),
    "aten.sum.dim_IntList": _reduction(_SUM),
    "aten.amax.default": _reduction(_MAX),
    "aten.amin.default": _reduction(_MIN),
    "aten.argmax.default": _position(least=False),
    "aten.argmin.default": _position(least=True),
}
