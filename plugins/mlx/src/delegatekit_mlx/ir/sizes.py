"""Sizes that change from call to call: sympy's expressions while lowering, integer operators in the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from delegatekit_toolkit import expressions
from delegatekit_toolkit.expressions import Expression, expression_of

from ..blob import schema

#: A size: a number, or sympy's expression if it changes from call to call.
Size: TypeAlias = Expression
size_of = expression_of


class Scalar:
    """An integer that is computed in each call."""


#: Integers in the graph: known ones, and computed ones.
Terms: TypeAlias = "tuple[int | Scalar, ...]"

_OPERATORS: Final[Mapping[str, type[schema.Integers]]] = {
    "add": schema.AddIntNode,
    "sub": schema.SubtractIntNode,
    "mul": schema.MultiplyIntNode,
    "floor_div": schema.FloorDivideIntNode,
    "mod": schema.ModIntNode,
}
#: Sizes and their differences are smaller; the runtime on the device has integers of 32 bits.
_MOST: Final = 1 << 30


class SizeWriter(expressions.SizeWriter[Any]):
    """Writes the operators that compute sizes, as tuples of terms."""

    where = "MLX lowering"

    def __init__(self, write: Callable[..., Scalar]) -> None:
        super().__init__()
        self._write: Final = write

    def constant(self, numbers: Sequence[int]) -> Terms:
        """Known numbers."""
        return tuple(numbers)

    def measured(self, value: Any, axis: int) -> Terms:
        """The size of a value along an axis."""
        return (self._write(schema.SymSizeNode, a=value, dim=axis),)

    def joined(self, kind: str, left: Terms, right: Terms) -> Terms:
        """Two sizes joined. There is no maximum or minimum: 1 or 0, as one is larger or not, times the difference."""
        if kind in ("maximum", "minimum"):
            less = self.joined("sub", left, right)
            larger = self.joined("floor_div", self.joined("add", less, (_MOST,)), (_MOST,))
            if kind == "maximum":
                return self.joined("add", right, self.joined("mul", larger, less))
            return self.joined("sub", left, self.joined("mul", larger, less))
        return (self._write(_OPERATORS[kind], a=left[0], b=right[0]),)

    def concatenated(self, parts: list[Terms]) -> Terms:
        """Sizes one after the other."""
        return tuple(term for part in parts for term in part)
