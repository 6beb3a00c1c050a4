"""Sizes that change from call to call: known by what they are in a few sample calls.

A runtime that propagates sizes by itself, call by call, needs to be told little: all that must be known of a size that
changes is whether it equals another one, and what it is in the largest call, which the blob declares. Both follow from
its value in some calls that stand for all: whichever way PyTorch and a backend write a size down, equal sizes have
equal values.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, TypeAlias

import sympy  # type: ignore[import-untyped]
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from delegatekit_api import LoweringError, Operand

#: How many calls stand for all: the largest, the smallest, and others in between. Two sizes that are independent of
#: each other are taken for equal with probability 2^-30 at most.
_CALLS: Final = 32
#: Sizes beyond this have no bound worth the name.
_LIMIT: Final = 1 << 31


class Dynamic:
    """A size that changes from call to call: its value in each of the sample calls, of which the first is the largest.

    It computes as an int does. It equals only a size that is the same in every call, and never an int. It has no order:
    see `largest`, `smallest` and `at_most`.

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
    return _size(tuple(map(function, _calls(left), _calls(right))))


def _size(calls: tuple[int, ...]) -> Size:
    return calls[0] if len(set(calls)) == 1 else Dynamic(calls)


def _calls(size: Size) -> tuple[int, ...]:
    return size.calls if isinstance(size, Dynamic) else (size,) * _CALLS


def largest(size: Size) -> int:
    """The size in the largest call.

    >>> largest(Dynamic((8, 1, 5))), largest(3)
    (8, 3)
    """
    return size.calls[0] if isinstance(size, Dynamic) else size


def smallest(size: Size) -> int:
    """The least that the size is in any call.

    >>> smallest(Dynamic((8, 1, 5)))
    1
    """
    return min(size.calls) if isinstance(size, Dynamic) else size


def minimum(left: Size, right: Size) -> Size:
    """The lesser of two sizes, call by call.

    >>> minimum(Dynamic((8, 1, 5)), 4).calls
    (4, 1, 4)
    """
    return _combined(min, left, right)


def at_most(left: Size, right: Size) -> bool:
    """Whether `left` exceeds `right` in no call.

    >>> at_most(Dynamic((8, 1, 5)), 8)
    True
    """
    return all(map(operator.le, _calls(left), _calls(right)))


def dynamic_count(shape: Iterable[Size]) -> int:
    """How many sizes of a shape change.

    >>> dynamic_count((Dynamic((8, 1, 5)), 3))
    1
    """
    return sum(isinstance(size, Dynamic) for size in shape)


def size_of(size: Any) -> Size:
    """An int as it is, a torch.SymInt as what it is in the sample calls.

    A size that may be 0 is taken to be 1 at least: calls without elements are refused at run time. Raises
    LoweringError for a size without an upper bound.

    >>> size_of(7)
    7
    """
    if isinstance(size, int):
        return size
    ranges = size.node.shape_env.var_to_range
    expression = size.node.expr
    symbols = sorted(expression.free_symbols, key=str)
    return _sampled(expression, tuple((symbol, ranges[symbol].lower, ranges[symbol].upper) for symbol in symbols))


def shape_of(operand: Operand) -> tuple[Size, ...]:
    """The sizes of a tensor of the program. Raises LoweringError for one without an upper bound."""
    return tuple(map(size_of, operand.value.shape))


def most(size: Any) -> int | None:
    """The largest value of an int or SymInt; None if it has no upper bound.

    A size that shrinks where another one grows is largest where that is least, which PyTorch takes for 2 or more.

    >>> most(7)
    7
    """
    if isinstance(size, int):
        return size
    environment, expression = size.node.shape_env, size.node.expr
    # Where nothing is divided by it, a size may be 0.
    for least in (0, 1):
        ranges = {}
        for symbol in expression.free_symbols:
            known = environment.bound_sympy(symbol)
            ranges[symbol] = ValueRanges(least, known.upper) if known.lower <= 2 <= known.upper else known
        bound = bound_sympy(expression, ranges).upper
        if getattr(bound, "is_Integer", False):
            return int(bound)
    return None


def is_bounded(size: Any) -> bool:
    """Whether an int or SymInt has an upper bound.

    >>> is_bounded(7)
    True
    """
    try:
        size_of(size)
    except LoweringError:
        return False
    return True


@cache
def _sampled(expression: sympy.Expr, ranges: tuple[tuple[sympy.Symbol, Any, Any], ...]) -> Size:
    for symbol, _, upper in ranges:
        if not (getattr(upper, "is_Integer", False) and upper < _LIMIT):
            raise LoweringError(f"the size {symbol} has no upper bound", where=str(expression))
    calls = []
    for call in range(_CALLS):
        values = {symbol: _value(symbol, _least(lower), int(upper), call) for symbol, lower, upper in ranges}
        calls.append(int(expression.xreplace(values)))
    return _size(tuple(calls))


def _least(lower: Any) -> int:
    """The least value of a symbol: PyTorch says 2 where the program was exported for 0 or 1 on."""
    return 1 if lower <= 2 else int(lower)


def _value(symbol: sympy.Symbol, lower: int, upper: int, call: int) -> sympy.Integer:
    """A symbol in a sample call: its bounds first, then numbers that are random but always the same."""
    if call < 2:
        return sympy.Integer((upper, lower)[call])
    digest = hashlib.sha256(f"{symbol} {call}".encode()).digest()
    return sympy.Integer(lower + int.from_bytes(digest[:8], "little") % (upper - lower + 1))
