"""Strided views of tensors for shaders, and the shader that copies elements between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..shaders.numbers import Limit
from .memory import Value
from .tape import Tape


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a contiguous tensor.

    >>> strides((2, 3, 4))
    (12, 4, 1)
    """
    found: list[int] = []
    step = 1
    for size in reversed(shape):
        found.append(step)
        step *= size
    return tuple(reversed(found))


def broadcast_strides(shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor seen with a larger shape: 0 where it is repeated.

    >>> broadcast_strides((3, 1), (2, 3, 4))
    (0, 1, 0)
    """
    missing = len(target) - len(shape)
    own = strides(shape)
    return (0,) * missing + tuple(0 if size == 1 else step for size, step in zip(shape, own, strict=True))


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """The common shape of some shapes; None if there is none.

    >>> broadcast((3, 1), (2, 1, 4)), broadcast((3,), (2,))
    ((2, 3, 4), None)
    """
    rank = max(map(len, shapes), default=0)
    result = []
    for axis in range(1, rank + 1):
        sizes = {shape[-axis] for shape in shapes if axis <= len(shape)} - {1}
        if len(sizes) > 1:
            return None
        result.append(sizes.pop() if sizes else 1)
    return tuple(reversed(result))


def joined(sizes: Sequence[int], *steps: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Fewer axes with the same elements: those of size 1 are dropped, adjacent ones are merged.

    >>> joined((2, 1, 3, 4), (12, 12, 4, 1), (0, 0, 4, 1))
    ([2, 12], [[12, 1], [0, 1]])
    """
    kept: list[int] = []
    found: list[list[int]] = [[] for _ in steps]
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        here = [item[axis] for item in steps]
        if kept and all(before[-1] == size * step for before, step in zip(found, here, strict=True)):
            kept[-1] *= size
            for before, step in zip(found, here, strict=True):
                before[-1] = step
        else:
            kept.append(size)
            for before, step in zip(found, here, strict=True):
                before.append(step)
    return kept, found


def padded(numbers: Sequence[int], axes: int = Limit.AXES) -> list[int]:
    """The numbers as the last of this many; shaders ignore the others."""
    return [0] * (axes - len(numbers)) + list(numbers)


@dataclass(frozen=True)
class Walk:
    """A shader's iteration over a result, and over operands that repeat along some of its axes."""

    #: Invocations, and True if each computes four adjacent elements.
    items: int
    wide: bool
    #: Axes to iterate over, in units of an invocation; none if all is one row.
    sizes: list[int]
    #: For each operand: the steps along these axes, and (if four are computed at once) True if one element serves all.
    steps: list[list[int]]
    single: tuple[bool, ...]


def walk(tape: Tape, shape: Sequence[int], *operands: Sequence[int], most: int | None = Limit.AXES) -> Walk:
    """The cheapest iteration over a result. Raises FormatError unless its sizes are those of the operands, broadcast,
    and for more axes than `most`.
    """
    if broadcast(*operands) != tuple(shape):
        raise tape_error(tape, f"declares the result {tuple(shape)}, computes {broadcast(*operands)}")
    sizes, steps = joined(shape, *(broadcast_strides(operand, shape) for operand in operands))
    count = math.prod(shape)
    if len(sizes) <= 1:
        # Blocks are padded to four words: the last group may have fewer elements.
        return Walk(-(-count // 4), True, [], [[] for _ in steps], tuple(item == [0] for item in steps))
    if most is not None and len(sizes) > most:
        raise tape_error(tape, f"has operands that repeat along {len(sizes)} axes: {most} are the most")
    wide = sizes[-1] % 4 == 0 and all(
        item[-1] == 0 or (item[-1] == 1 and not any(step % 4 for step in item[:-1])) for item in steps
    )
    if not wide:
        single = tuple(False for _ in steps)
        return Walk(count, False, sizes, steps, single)
    sizes[-1] //= 4
    steps = [item if item[-1] == 0 else [step // 4 for step in item[:-1]] + [1] for item in steps]
    return Walk(count // 4, True, sizes, steps, tuple(item[-1] == 0 for item in steps))


def copy(
    tape: Tape,
    source: Value,
    target: Value,
    sizes: Sequence[int],
    from_strides: Sequence[int],
    to_strides: Sequence[int],
    *,
    from_offset: int = 0,
    to_offset: int = 0,
) -> None:
    """Copy a box of elements of `sizes` between two strided views; strides and offsets in elements.

    Every operation on strided views is such a copy. Raises FormatError for more axes than the shader has.
    """
    kept, (froms, tos) = joined(sizes, from_strides, to_strides)
    if len(kept) > Limit.AXES:
        raise tape_error(tape, f"moves elements along {len(kept)} axes: {Limit.AXES} are the most")
    count = math.prod(sizes)
    # Four adjacent positions at a time; those adjacent in the source, too, are read at once.
    wide = bool(kept) and kept[-1] % 4 == 0 and tos[-1] == 1 and not any(step % 4 for step in (*tos[:-1], to_offset))
    together = wide and froms[-1] == 1 and not any(step % 4 for step in (*froms[:-1], from_offset))
    step = froms[-1] if wide else 0
    if wide:
        count, to_offset, kept[-1] = count // 4, to_offset // 4, kept[-1] // 4
        tos = [step // 4 for step in tos[:-1]] + [1]
        froms[-1] *= 4
    if together:
        from_offset //= 4
        froms = [step // 4 for step in froms]
    push = [count, from_offset, to_offset, *padded(kept), *padded(froms), *padded(tos), step]
    constants = (target.is_half, len(kept), wide, together)
    tape.dispatch("copy", (source, target), push, constants, items=count)


def whole_copy(tape: Tape, source: Value, target: Value, from_strides: Sequence[int], from_offset: int = 0) -> None:
    """Fill a contiguous target of the same or a larger shape from a strided source."""
    copy(tape, source, target, target.shape, from_strides, strides(target.shape), from_offset=from_offset)


def contiguous(tape: Tape, source: Value, shape: Sequence[int]) -> Value:
    """The source repeated to a larger shape, in memory of its own; the source itself if it has that shape."""
    if source.shape == tuple(shape):
        return source
    made = tape.scratch(shape, source.datatype)
    whole_copy(tape, source, made, broadcast_strides(source.shape, shape))
    return made


def permuted(tape: Tape, source: Value, order: Sequence[int]) -> Value:
    """The source with its axes in another order, in memory of its own if elements move."""
    shape = tuple(source.shape[axis] for axis in order)
    moving = [axis for axis in order if source.shape[axis] != 1]
    if moving == sorted(moving):
        return Value(shape, source.datatype, source.block)
    made = tape.scratch(shape, source.datatype)
    own = strides(source.shape)
    whole_copy(tape, source, made, [own[axis] for axis in order])
    return made


def viewed(source: Value, shape: Sequence[int]) -> Value:
    """The same memory with another shape of as many elements."""
    return Value(tuple(shape), source.datatype, source.block)


def tape_error(tape: Tape, what: str) -> Exception:
    """A FormatError about the call that is being written."""
    from delegatekit_api import FormatError

    return FormatError(what, where=tape.where)
