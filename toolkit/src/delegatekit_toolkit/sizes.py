"""Sizes that change from call to call, represented by their values in a few sample calls.

A runtime that propagates sizes by itself, call by call, needs little information: whether a size that changes equals
another one, and its value in the largest call, which the blob declares. Both follow from its values in some
representative calls: however PyTorch and a backend write a size, equal sizes have equal values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from delegatekit_api.versions import moved

#: The number of sample calls: the largest, the smallest, and others in between. The probability that two independent
#: sizes are taken for equal is at most 2^-30.
CALLS: Final = 32


class Dynamic:
    """A size that changes from call to call: its value in each of the sample calls, of which the first is the largest.

    It supports the arithmetic of int. It equals only a size that is the same in every call, and never an int. It has no
    order: see `largest`, `smallest` and `at_most`.

    >>> rows = Dynamic((8, 1, 5))
    >>> 2 * rows + 1, rows - rows, rows == 8
    (3..17, 0, False)
    """

    __slots__ = ("calls",)

    def __init__(self, calls: tuple[int, ...]) -> None:
        self.calls = calls

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dynamic) and self.calls == other.calls

    def __hash__(self) -> int:
        return hash(self.calls)

    def __repr__(self) -> str:
        return f"{min(self.calls)}..{max(self.calls)}"

    def __add__(self, other: Size) -> Size:
        return _combined(operator.add, self, other)

    def __sub__(self, other: Size) -> Size:
        return _combined(operator.sub, self, other)

    def __rsub__(self, other: Size) -> Size:
        return _combined(operator.sub, other, self)

    def __mul__(self, other: Size) -> Size:
        return _combined(operator.mul, self, other)

    def __floordiv__(self, other: Size) -> Size:
        return _combined(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return _combined(operator.floordiv, other, self)

    def __mod__(self, other: Size) -> Size:
        return _combined(operator.mod, self, other)

    def __rmod__(self, other: Size) -> Size:
        return _combined(operator.mod, other, self)

    __radd__ = __add__
    __rmul__ = __mul__


Size: TypeAlias = "int | Dynamic"


def _combined(function: Callable[[int, int], int], left: Size, right: Size) -> Size:
    return size_in(tuple(map(function, _calls(left), _calls(right))))


def size_in(calls: tuple[int, ...]) -> Size:
    """The size with these values in the sample calls: an int if all are equal."""
    return calls[0] if len(set(calls)) == 1 else Dynamic(calls)


def _calls(size: Size) -> tuple[int, ...]:
    return size.calls if isinstance(size, Dynamic) else (size,) * CALLS


def largest(size: Size) -> int:
    """The size in the largest call.

    >>> largest(Dynamic((8, 1, 5))), largest(3)
    (8, 3)
    """
    return size.calls[0] if isinstance(size, Dynamic) else size


def smallest(size: Size) -> int:
    """The smallest value of the size in any call.

    >>> smallest(Dynamic((8, 1, 5)))
    1
    """
    return min(size.calls) if isinstance(size, Dynamic) else size


def minimum(left: Size, right: Size) -> Size:
    """The smaller of two sizes, call by call.

    >>> minimum(Dynamic((8, 1, 5)), 4).calls
    (4, 1, 4)
    """
    return _combined(min, left, right)


def at_most(left: Size, right: Size) -> bool:
    """True if `left` exceeds `right` in no call.

    >>> at_most(Dynamic((8, 1, 5)), 8)
    True
    """
    return all(map(operator.le, _calls(left), _calls(right)))


def dynamic_count(shape: Iterable[Size]) -> int:
    """The number of sizes of a shape that change.

    >>> dynamic_count((Dynamic((8, 1, 5)), 3))
    1
    """
    return sum(isinstance(size, Dynamic) for size in shape)


if not TYPE_CHECKING:
    __getattr__ = moved(__name__)
