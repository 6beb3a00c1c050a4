"""Sizes of torch.export's programs as their values in the sample calls (`delegatekit_toolkit.sizes`).

A separate module, since sympy takes half a second to import: what runs a blob needs only `sizes`.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, Final

import sympy  # type: ignore[import-untyped]
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from delegatekit_api import Call, LoweringError, Operand

from .signature import Extent, Range, TensorType
from .sizes import CALLS, Size, size_in

#: Larger bounds count as no bound.
_LIMIT: Final = 1 << 31


def size_of(size: Any) -> Size:
    """An int unchanged, a torch.SymInt as its values in the sample calls.

    A size that may be 0 is taken as 1 or more: calls without elements are refused at run time. Raises LoweringError for
    a size without an upper bound.

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

    A size that shrinks where another one grows is largest where that is smallest, which PyTorch takes for 2 or more.

    >>> most(7)
    7
    """
    if isinstance(size, int):
        return size
    environment, expression = size.node.shape_env, size.node.expr
    # If nothing is divided by it, a size may be 0.
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
    """True if an int or SymInt has an upper bound.

    >>> is_bounded(7)
    True
    """
    try:
        size_of(size)
    except LoweringError:
        return False
    return True


def bounded_sizes(call: Call) -> str | None:
    """Sizes that change have an upper bound.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> bounded_sizes(call_of(torch.neg, torch.ones(2), dynamic_shapes=(({0: torch.export.Dim("n")},),)))
    'arguments_0 (...) has a size without an upper bound'
    """
    for operand in call.tensors if call.is_dynamic else ():
        if not all(map(is_bounded, operand.shape)):
            return f"{operand.name} {operand.shape} has a size without an upper bound"
    return None


@cache
def _sampled(expression: sympy.Expr, ranges: tuple[tuple[sympy.Symbol, Any, Any], ...]) -> Size:
    for symbol, _, upper in ranges:
        if not (getattr(upper, "is_Integer", False) and upper < _LIMIT):
            raise LoweringError(f"the size {symbol} has no upper bound", where=str(expression))
    calls = []
    for call in range(CALLS):
        values = {symbol: _value(symbol, _least(lower), int(upper), call) for symbol, lower, upper in ranges}
        calls.append(int(expression.xreplace(values)))
    return size_in(tuple(calls))


def _least(lower: Any) -> int:
    """The smallest value of a symbol: PyTorch reports 2 if the program was exported for 0 or 1 and above."""
    return 1 if lower <= 2 else int(lower)


def _value(symbol: sympy.Symbol, lower: int, upper: int, call: int) -> sympy.Integer:
    """A symbol in a sample call: its bounds first, then numbers that are random but always the same."""
    if call < 2:
        return sympy.Integer((upper, lower)[call])
    digest = hashlib.sha256(f"{symbol} {call}".encode()).digest()
    return sympy.Integer(lower + int.from_bytes(digest[:8], "little") % (upper - lower + 1))


class SizeBounds:
    """Describes the tensors of one partition; sizes of the same expression get the same symbol.

    `SizeBounds().type_of(operand)` for each input and output, with one `SizeBounds` for all of them.
    """

    def __init__(self) -> None:
        self._symbols: dict[Any, int] = {}

    def type_of(self, operand: Operand) -> TensorType:
        """The dtype and the bounds of an operand. Raises LoweringError for a size without an upper bound."""
        return TensorType(operand.dtype_name, tuple(self._extent(size, operand) for size in operand.shape))

    def _extent(self, size: Any, operand: Operand) -> Extent:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        bounds = size.node.shape_env.bound_sympy(expression)
        upper = most(size)
        if upper is None:
            raise LoweringError(f"has a size without an upper bound: {size}", where=operand.description)
        # PyTorch traces changing sizes as at least 2, whatever the user's range: that is not a bound.
        lower = int(bounds.lower) if expression.is_Symbol and bounds.lower.is_Integer and bounds.lower > 2 else 0
        symbol = self._symbols.setdefault(expression, len(self._symbols))
        return Range(lower, upper, symbol)
