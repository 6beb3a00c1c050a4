"""Sizes that change from call to call: sympy's expressions while lowering, nodes that compute them in the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import sympy  # type: ignore[import-untyped]

from delegatekit_api import LoweringError
from delegatekit_toolkit import expressions
from delegatekit_toolkit.expressions import expression_of, is_product

#: A size: a number, sympy's expression if it changes from call to call, None where no call says what it is.
Size: TypeAlias = "int | sympy.Expr | None"

#: Functions of two sizes by their names in PyTorch's expressions -> OpenVINO's operations.
_OPERATIONS: Final = {
    "FloorDiv": "divide",
    "CleanDiv": "divide",
    "Mod": "floor_mod",
    "PythonMod": "floor_mod",
    "Max": "maximum",
    "Min": "minimum",
}


def size_of(size: Any) -> Size:
    """A number or a torch.SymInt as a size."""
    return None if size is None else expression_of(size)


def sizes_of(shape: Sequence[Any]) -> tuple[Size, ...]:
    """The sizes of a shape."""
    return tuple(map(size_of, shape))


def is_fixed(size: Any) -> bool:
    """True if a size is the same in every call."""
    return isinstance(size_of(size), int)


def is_computable(size: Any) -> bool:
    """True if the model can compute a size from others."""
    return expressions.is_computable(size, _OPERATIONS)


class SizeWriter:
    """Writes the nodes that compute sizes, each of them once, as int64 tensors of shape (1,)."""

    def __init__(self, write: Callable[..., Any], constant: Callable[[Sequence[int]], Any]) -> None:
        self._write = write
        self._constant = constant
        #: Expression -> a value and its axis that has this size.
        self._sources: dict[sympy.Expr, tuple[Any, int]] = {}
        self._made: dict[sympy.Expr, Any] = {}

    def note(self, value: Any, shape: Sequence[Size]) -> None:
        """Record the sizes of a value."""
        for axis, size in enumerate(shape):
            if isinstance(size, sympy.Expr):
                self._sources.setdefault(size, (value, axis))

    def vector(self, shape: Sequence[Any]) -> Any:
        """Sizes as an operand (len(shape),). Raises LoweringError for a size that does not follow from those known."""
        sizes = sizes_of(shape)
        fixed = [size for size in sizes if isinstance(size, int)]
        if len(fixed) == len(sizes):
            return self._constant(fixed)
        parts = [self._term(size) for size in sizes]
        return parts[0] if len(parts) == 1 else self._write("concat", parts, axis=0)

    def _term(self, size: Size) -> Any:
        if isinstance(size, int):
            return self._constant([size])
        if size is None:
            raise LoweringError("a size is not known", where="OpenVINO lowering")
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
            return self._joined("divide", rest * factor.p, sympy.Integer(factor.q))
        if size.is_Add or size.is_Mul:
            return self._joined("add" if size.is_Add else "multiply", *size.args)
        if is_product(size):
            return self._joined("multiply", *[size.base] * int(size.exp))
        kind = _OPERATIONS.get(size.func.__name__)
        if kind is None:
            raise LoweringError(f"the size {size} cannot be computed", where="OpenVINO lowering")
        return self._joined(kind, *size.args)

    def _joined(self, kind: str, *terms: sympy.Expr) -> Any:
        first, *others = terms
        made = self._term(size_of(first))
        for item in others:
            made = self._write(kind, made, self._term(size_of(item)))
        return made

    def _measured(self, value: Any, axis: int) -> Any:
        """The size of a value along an axis."""
        shape = self._write("shape_of", value, output_type="i64")
        return self._write("gather", shape, self._constant([axis]), self._constant([0]))

    def _solved(self, symbol: sympy.Symbol) -> Any:
        """A symbol that is not itself the size of a value: from a multiple of it, and a sum with a number."""
        for size, source in self._sources.items():
            if size.free_symbols != {symbol} or not size.is_polynomial(symbol):
                continue
            factors = sympy.Poly(size, symbol).all_coeffs()
            if len(factors) == 2 and all(number.is_Integer for number in factors):
                less = self._write("subtract", self._measured(*source), self._constant([int(factors[1])]))
                return self._write("divide", less, self._constant([int(factors[0])]))
        raise LoweringError(f"the size {symbol} is not the size of a value", where="OpenVINO lowering")
