"""Writes the nodes that compute sizes which change from call to call: each expression once, from known values."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx import Node

from delegatekit_api import LoweringError, UnsupportedError

from .sizes import SYMBOLIC, affine, expression, is_size

aten = torch.ops.aten

#: Functions on numbers -> the equivalent Python operator in a graph.
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "ToFloat": torch.sym_float,
    "TruncToInt": math.trunc,
    "CeilToInt": math.ceil,
    "RoundToInt": round,
    "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge,
    "StrictLessThan": operator.lt,
    "LessThan": operator.le,
    "Equality": operator.eq,
}


class SizeNodes:
    """Writes the nodes that compute sizes into a graph, each expression once.

    `offer` names the tensors whose sizes are known at run time; `insert` makes a node in the graph.
    """

    def __init__(self, insert: Callable[[Any, tuple[Any, ...], Any], Node]) -> None:
        self._insert = insert
        self._known: dict[sympy.Expr, Node] = {}
        self._sources: dict[sympy.Expr, tuple[Node, int]] = {}

    def offer(self, node: Node) -> None:
        """Allow sizes to be taken from this value from now on: a tensor's shape, or a number computed in the graph."""
        value: Any = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    self._sources.setdefault(size.node.expr, (node, axis))
        elif is_size(value):
            self._known.setdefault(value.node.expr, node)

    def can(self, value: Any) -> bool:
        """True if a symbolic number can be computed from the offered values."""
        wanted = expression(value)
        if not isinstance(wanted, sympy.Basic) or wanted in self._known or wanted in self._sources:
            return True
        return all(self._solution(symbol) is not None for symbol in wanted.free_symbols)

    def node(self, value: Any) -> Any:
        """The node that computes a symbolic number; the number itself if it is a constant.

        Raises LoweringError if it cannot be computed from the offered values.
        """
        if not isinstance(value, SYMBOLIC):
            return value
        return self._of(value.node.expr)

    def _of(self, expr: Any) -> Any:
        if expr.is_Boolean and expr in (sympy.true, sympy.false):
            return bool(expr)
        if expr.is_number:
            return int(expr) if expr.is_Integer else float(expr)
        if expr in self._known:
            return self._known[expr]
        source = self._sources.get(expr)
        if source is not None:
            tensor, axis = source
            made: Any = self._insert(aten.sym_size.int, (tensor, axis), tensor.meta["val"].shape[axis])
        elif expr.is_Symbol:
            made = self._solved(expr)
        else:
            made = self._composite(expr)
        self._known[expr] = made
        return made

    def _solved(self, symbol: sympy.Symbol) -> Any:
        solution = self._solution(symbol)
        if solution is None:
            raise LoweringError(
                f"the size {symbol} is not a size of any input", hint="pass a tensor that has it, or a fixed size"
            )
        total, factor, offset = solution
        made = self._of(total)
        if offset:
            made = self._call(operator.sub, made, offset)
        return self._call(operator.floordiv, made, factor) if factor != 1 else made

    def _solution(self, symbol: sympy.Symbol) -> tuple[sympy.Expr, int, int] | None:
        """A known size, factor and offset, so that the size is factor * symbol + offset."""
        if symbol in self._known or symbol in self._sources:
            return symbol, 1, 0
        for expr in self._sources:
            terms = affine(expr)
            if terms is not None and terms[0] == symbol:
                return expr, *terms[1:]
        return None

    def _composite(self, expr: Any) -> Any:
        name = type(expr).__name__
        if expr.is_Add or expr.is_Mul:
            return self._sum_or_product(expr)
        if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            base = self._of(expr.base)
            return self._chain(operator.mul, [base] * int(expr.exp))
        if name in ("Max", "Min"):
            return self._chain(torch.sym_max if name == "Max" else torch.sym_min, map(self._of, expr.args))
        if name == "Not":
            return self._call(torch.sym_not, self._of(expr.args[0]))
        if name == "Unequality":
            return self._call(torch.sym_not, self._call(operator.eq, *map(self._of, expr.args)))
        if name in _FUNCTIONS:
            return self._call(_FUNCTIONS[name], *map(self._of, expr.args))
        raise UnsupportedError(f"the size {expr} cannot be computed in a .pte: {name} has no instruction")

    def _sum_or_product(self, expr: Any) -> Any:
        operators: tuple[Any, Any] = (operator.add, operator.sub) if expr.is_Add else (operator.mul, None)
        # A term with a minus is subtracted: intermediate sizes are not negative, and it saves an instruction.
        plain = [term for term in expr.args if not (expr.is_Add and term.could_extract_minus_sign())]
        negative = [-term for term in expr.args if expr.is_Add and term.could_extract_minus_sign()]
        parts = sorted(map(self._of, plain), key=lambda part: not isinstance(part, Node))
        result = self._chain(operators[0], parts) if parts else 0
        for term in negative:
            result = self._call(operator.sub, result, self._of(term))
        return result

    def _chain(self, function: Any, parts: Iterable[Any]) -> Any:
        first, *rest = parts
        for part in rest:
            first = self._call(function, first, part)
        return first

    def _call(self, function: Any, *operands: Any) -> Any:
        values = [item.meta["val"] if isinstance(item, Node) else item for item in operands]
        return self._insert(function, operands, function(*values))
