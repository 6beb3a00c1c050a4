"""Sums, means, extremes and their positions, along any axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...ir.types import DataType
from ...shaders.numbers import Finish, Reduce
from ..calls import Kernel, Reader
from ..memory import Value
from ..tape import Tape

#: Fewer rows than this are reduced in parts first if they are longer than `_LONG`, as are all longer than `LONGEST`.
_FEW, _LONG, LONGEST = 512, 1024, 16384


def _reduction(operation: Reduce, *, mean: bool = False) -> Kernel:
    def kernel(tape: Tape, call: Reader) -> None:
        value = call.tensor(0)
        axes = call.axes(1, value.rank)
        target = tape.result(call.result, reduced_shape(value.shape, axes, keep=call.truth(2)))
        count = math.prod(value.shape[axis] for axis in axes) if value.rank else 1
        if not (value.is_float and target.is_float):
            raise call.error("reduces integers")
        if operation in (Reduce.MAX, Reduce.MIN) and not count:
            raise call.error(f"looks for the largest of no elements: {value.shape}")
        reduce(tape, Reduction(operation, divisor=float(count) if mean else None), value, target, axes)

    return kernel


def reduced_shape(shape: Sequence[int], axes: Sequence[int], *, keep: bool) -> tuple[int, ...]:
    """The shape after axes are reduced to size 1, or removed."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)


@dataclass(frozen=True)
class Reduction:
    """The reduction of the elements along an axis."""

    operation: Reduce
    #: Of each result, for SUM_EXPONENTIALS and SUM_SQUARES: the value that is subtracted from its elements.
    shift: Value | None = None
    #: The divisor of the result; with `epsilon` it becomes 1 / sqrt(result + epsilon) then.
    divisor: float | None = None
    epsilon: float | None = None

    def without_finish(self) -> Reduction:
        """Its first part, if a row is reduced in two."""
        return Reduction(self.operation, self.shift)

    def of_parts(self) -> Reduction:
        """The reduction that joins the parts of a row."""
        joining = Reduce.SUM if self.operation in (Reduce.SUM_EXPONENTIALS, Reduce.SUM_SQUARES) else self.operation
        return Reduction(joining, None, self.divisor, self.epsilon)


def reduce(tape: Tape, what: Reduction, value: Value, target: Value, axes: Sequence[int]) -> None:
    """Dispatch a reduction: adjacent axes at once, from the last to the first."""
    steps = _steps(value.shape, axes) or [(value.count, 1, 1)]
    for sizes in steps[:-1]:
        made = tape.scratch((sizes[0] * sizes[2],))
        reduce_axis(tape, what.without_finish(), value, made, sizes)
        value = made
    reduce_axis(tape, what, value, target, steps[-1])


def reduce_axis(tape: Tape, what: Reduction, value: Value, target: Value, sizes: tuple[int, int, int]) -> None:
    """Dispatch a reduction of the middle one of three axes; of few long rows, or very long ones, in parts first."""
    outer, size, inner = sizes
    length = part_length(outer * inner, size)
    if length < size:
        parts = -(-size // length)
        made = tape.scratch((outer * parts * inner,))
        _dispatch(tape, what.without_finish(), value, made, sizes, length)
        value, what, sizes = made, what.of_parts(), (outer, parts, inner)
    _dispatch(tape, what, value, target, sizes, sizes[1])


def part_length(rows: int, size: int) -> int:
    """The number of elements of a row for one invocation.

    Some drivers silently end all loops of an invocation after 65535 rounds.
    """
    return -(-math.isqrt(size) // 64) * 64 if (rows < _FEW and size > _LONG) or size > LONGEST else size


def _dispatch(
    tape: Tape, what: Reduction, value: Value, target: Value, sizes: tuple[int, int, int], length: int
) -> None:
    outer, size, inner = sizes
    parts = -(-size // length) if size else 1
    count = outer * parts * inner
    finish = Finish.QUOTIENT if what.epsilon is None else Finish.INVERSE_ROOT
    if what.divisor is None:
        finish = Finish.NOTHING
    push = (count, size, max(length, 1), parts, inner, what.divisor or 0.0, what.epsilon or 0.0)
    constants = (target.is_half, what.operation, finish, what.shift is not None)
    tape.dispatch("reduce", (value, what.shift or value, target), push, constants, items=count)


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
        target = tape.result(call.result, reduced_shape(value.shape, axes, keep=call.truth(2)))
        steps = _steps(value.shape, axes) or [(value.count, 1, 1)]
        outer, size, inner = steps[0]
        if not size:
            raise call.error(f"looks for a position among no elements: {value.shape}")
        if target.is_float or not value.is_float:
            raise call.error("looks for a position among integers, or gives positions that are not integers")
        length = part_length(outer * inner, size)
        parts = -(-size // length)
        push = (size, length, parts, inner)
        constants = (target.is_half, least)
        rows, known = outer * inner, target if parts == 1 else tape.scratch((outer * parts * inner,), DataType.INT32)
        tape.dispatch(
            "arg_reduce", (value, value, known), (rows * parts, *push), (*constants, False), items=rows * parts
        )
        if parts > 1:
            tape.dispatch("arg_reduce", (value, known, target), (rows, *push), (*constants, True), items=rows)

    return kernel


KERNELS: Final[dict[str, Kernel]] = {
    "aten.mean.dim": _reduction(Reduce.SUM, mean=True),
    "aten.sum.dim_IntList": _reduction(Reduce.SUM),
    "aten.amax.default": _reduction(Reduce.MAX),
    "aten.amin.default": _reduction(Reduce.MIN),
    "aten.argmax.default": _position(least=False),
    "aten.argmin.default": _position(least=True),
}
