"""Sizes that change from call to call: symbolic expressions at lowering time, and the operations that compute them from
the sizes of values at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import sympy  # type: ignore[import-untyped]

from delegatekit_api import LoweringError
from delegatekit_toolkit import expressions
from delegatekit_toolkit.expressions import expression_of, is_product

#: A size: a number, or sympy's expression if it changes from call to call.
Size: TypeAlias = "int | sympy.Expr"

#: Functions of two sizes by their names in PyTorch's expressions -> operations of MIL.
_OPERATIONS: Final = {
    "FloorDiv": "floor_div",
    "CleanDiv": "floor_div",
    "Mod": "mod",
    "PythonMod": "mod",
    "Max": "maximum",
    "Min": "minimum",
}


def size_of(size: Any) -> Size:
    """A number, a torch.SymInt, or a size from MIL's builder, as a size."""
    return expression_of(size)


def sizes_of(shape: Sequence[Any]) -> tuple[Size, ...]:
    """The sizes of a shape."""
    return tuple(map(size_of, shape))


def is_fixed(size: Any) -> bool:
    """True if a size is the same in every call."""
    return isinstance(size_of(size), int)


def is_computable(size: Any) -> bool:
    """True if MIL can compute a size from others."""
    return expressions.is_computable(size, _OPERATIONS)


class SizeWriter:
    """Writes the operations that compute sizes, each of them once, from the sizes of existing values."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        #: Expression -> a value and its axis that has this size.
        self._sources: dict[sympy.Expr, tuple[Any, int]] = {}
        self._shapes: dict[str, Any] = {}
        self._made: dict[sympy.Expr, Any] = {}

    def note(self, value: Any) -> None:
        """Record the sizes of a value."""
        for axis, size in enumerate(value.shape):
            if isinstance(size, sympy.Expr) and not size.is_Integer:
                self._sources.setdefault(size, (value, axis))

    def vector(self, shape: Sequence[Any]) -> Any:
        """Sizes as an argument of an operation: numbers if all are known, else a value (len(shape),).

        Raises LoweringError for a size that does not follow from those of values.
        """
        sizes = sizes_of(shape)
        if all(isinstance(size, int) for size in sizes):
            return np.array(sizes, dtype=np.int32)
        parts = [self._term(size) for size in sizes]
        return parts[0] if len(parts) == 1 else self._call("concat", values=parts, axis=np.int32(0))

    def _term(self, size: Size) -> Any:
        """A size as a value (1,)."""
        if isinstance(size, int):
            return np.array([size], dtype=np.int32)
        found = self._made.get(size)
        if found is None:
            found = self._made[size] = self._computed(size)
        return found

    def _computed(self, size: sympy.Expr) -> Any:
        source = self._sources.get(size)
        if source is not None:
            return self._measured(*source)
        if size.is_Symbol:
            return self._solved(size)
        factor, rest = size.as_coeff_Mul()
        if not factor.is_Integer:
            product = self._joined("mul", rest, sympy.Integer(factor.p))
            return self._binary("floor_div", product, np.int32(factor.q))
        if size.is_Add or size.is_Mul:
            return self._joined("add" if size.is_Add else "mul", *size.args)
        if is_product(size):
            return self._joined("mul", *[size.base] * int(size.exp))
        kind = _OPERATIONS.get(size.func.__name__)
        if kind is None:
            raise LoweringError(f"the size {size} cannot be computed", where="Core ML lowering")
        return self._joined(kind, *size.args)

    def _joined(self, kind: str, *terms: sympy.Expr) -> Any:
        """Several sizes combined by one operation after the other."""
        first, *others = terms
        made = self._term(size_of(first))
        for item in others:
            made = self._binary(kind, made, self._term(size_of(item)))
        return made

    def _binary(self, kind: str, left: Any, right: Any) -> Any:
        if not hasattr(left, "op"):
            left = self._call("const", val=left)
        return self._call(kind, x=left, y=right)

    def _measured(self, value: Any, axis: int) -> Any:
        """The size of a value along an axis."""
        shape = self._shapes.get(value.name)
        if shape is None:
            shape = self._shapes[value.name] = self._call("shape", x=value)
            # MIL's builder would compute with expressions from here on, and solve equations at each reshape.
            shape._sym_val = None
        return self._call("gather", x=shape, indices=self._term(axis))

    def _solved(self, symbol: sympy.Symbol) -> Any:
        """A symbol that is not itself the size of a value: from a multiple of it, and a sum with a number."""
        for size, source in self._sources.items():
            if size.free_symbols != {symbol} or not size.is_polynomial(symbol):
                continue
            factors = sympy.Poly(size, symbol).all_coeffs()
            if len(factors) == 2 and all(number.is_Integer for number in factors):
                less = self._binary("sub", self._measured(*source), np.int32(factors[1]))
                return self._binary("floor_div", less, np.int32(factors[0]))
        raise LoweringError(f"the size {symbol} is not the size of a value", where="Core ML lowering")
