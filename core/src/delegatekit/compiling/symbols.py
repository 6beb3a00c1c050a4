"""Changing sizes as plain data: symbols with their ranges, and expressions over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions

#: The types of size values, and the name of each.
_KINDS: Final = {torch.SymInt: "int", torch.SymFloat: "float", torch.SymBool: "bool"}


class SymbolWriter:
    """Writes values of a shape environment, and remembers the symbols that occur."""

    def __init__(self) -> None:
        #: For each symbol: lowest and highest value (None: no bound), the example's, and whether it is positive.
        self.symbols: dict[str, list[Any]] = {}

    def size(self, value: Any) -> Any:
        """A size: an int, or an expression."""
        return value if isinstance(value, int) else self._expression(value.node.expr, value.node)

    def value(self, value: Any) -> dict[str, Any]:
        """A number that the program computes: its kind, expression and example."""
        node = value.node
        return {"kind": _KINDS[type(value)], "is": self._expression(node.expr, node), "example": _example(node)}

    def _expression(self, expression: Any, node: Any) -> Any:
        if isinstance(expression, sympy.Symbol):
            self._remember(expression, node.shape_env)
            return str(expression)
        if isinstance(expression, bool | sympy.logic.boolalg.BooleanAtom):
            return bool(expression)
        if isinstance(expression, sympy.Integer):
            return int(expression)
        if isinstance(expression, sympy.Float):
            return float(expression)
        if isinstance(expression, sympy.Rational):
            return ["/", int(expression.p), int(expression.q)]
        return [expression.func.__name__, *(self._expression(item, node) for item in expression.args)]

    def _remember(self, symbol: Any, shape_env: Any) -> None:
        if str(symbol) in self.symbols:
            return
        known = shape_env.var_to_range.get(symbol)
        bounds = (None, None) if known is None else (_bound(known.lower), _bound(known.upper))
        example = _examples(shape_env).get(symbol)
        self.symbols[str(symbol)] = [*bounds, None if example is None else int(example), symbol.is_positive is True]


class SymbolReader:
    """A shape environment with a writer's symbols, and values in it."""

    def __init__(self, symbols: Mapping[str, Any]) -> None:
        self.shape_env = ShapeEnv()
        self._symbols = {}
        for name, (low, high, example, positive) in symbols.items():
            symbol = sympy.Symbol(name, integer=True, **({"positive": True} if positive else {}))
            self._symbols[name] = symbol
            if example is not None:
                _examples(self.shape_env)[symbol] = sympy.Integer(example)
            self.shape_env.constrain_symbol_range(
                symbol,
                compiler_min=-sympy.oo if low is None else low,
                compiler_max=sympy.oo if high is None else high,
            )

    def size(self, plain: Any) -> Any:
        """The size that a writer wrote."""
        if isinstance(plain, int):
            return plain
        expression = self._expression(plain)
        example = expression.xreplace(_examples(self.shape_env))
        hint = int(example) if example.is_Integer else None
        return self.shape_env.create_symintnode(expression, hint=hint)

    def value(self, plain: Mapping[str, Any]) -> Any:
        """The number that a writer wrote."""
        make: Any = {
            "int": self.shape_env.create_symintnode,
            "float": self.shape_env.create_symfloatnode,
            "bool": self.shape_env.create_symboolnode,
        }[plain["kind"]]
        arguments = {} if plain["kind"] == "bool" else {"hint": plain["example"]}
        return make(self._expression(plain["is"]), **arguments)

    def _expression(self, plain: Any) -> Any:
        if isinstance(plain, str):
            return self._symbols[plain]
        if not isinstance(plain, list):
            return sympy.sympify(plain)
        name, *arguments = plain
        if name == "/":
            return sympy.Rational(*arguments)
        function = getattr(functions, name, None) or getattr(sympy, name)
        return function(*map(self._expression, arguments))


def _bound(value: Any) -> int | None:
    return int(value) if value.is_Integer else None


def _example(node: Any) -> int | float | bool | None:
    hint: int | float | bool | None = node.hint
    return hint


def _examples(shape_env: Any) -> Any:
    """The example's sizes, by symbol; under their name in this version of torch."""
    for name in ("backed_var_to_val", "var_to_val"):
        found = getattr(shape_env, name, None)
        if found is not None:
            return found
    return {}
