"""Sizes of torch.export's programs as sympy's expressions, for backends whose models compute sizes themselves.

A separate module, since sympy takes half a second to import.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

import sympy  # type: ignore[import-untyped]

from delegatekit_api import Call, LoweringError, Operand

from .arguments import axes_of
from .narrowing import INT32_MAX
from .support import Constraint

#: A size: a number, or sympy's expression if it changes from call to call.
Expression: TypeAlias = "int | sympy.Expr"
#: A value of a model.
ValueT = TypeVar("ValueT")

#: Functions of two sizes by their names in PyTorch's expressions -> what a SizeWriter joins them by.
_FUNCTIONS: Final = {
    "FloorDiv": "floor_div",
    "CleanDiv": "floor_div",
    "Mod": "mod",
    "PythonMod": "mod",
    "Max": "maximum",
    "Min": "minimum",
}


def expression_of(size: Any) -> Expression:
    """A number, a torch.SymInt or an expression as a size, without bounds beyond 32 bits.

    >>> expression_of(sympy.Integer(7))
    7
    """
    found = size.node.expr if hasattr(size, "node") else size
    if not isinstance(found, sympy.Expr) or found.is_Integer:
        return int(found)
    if any(number > INT32_MAX for number in found.atoms(sympy.Integer)):
        found = found.replace(lambda item: item.func.__name__ == "Min", _bounded)
    return found


def _bounded(least: sympy.Expr) -> sympy.Expr:
    """The minimum of some sizes, without bounds beyond 32 bits, which PyTorch uses for open slices."""
    sizes = [item for item in least.args if not (item.is_Integer and item > INT32_MAX)]
    return sizes[0] if len(sizes) == 1 else least.func(*sizes)


def sizes_of(shape: Iterable[Any]) -> tuple[Expression, ...]:
    """The sizes of a shape.

    >>> sizes_of([2, sympy.Symbol("rows")])
    (2, rows)
    """
    return tuple(map(expression_of, shape))


def is_fixed(size: Any) -> bool:
    """True if a size is the same in every call.

    >>> is_fixed(7), is_fixed(sympy.Symbol("rows"))
    (True, False)
    """
    return isinstance(expression_of(size), int)


def broadcast(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """The common shape of some that PyTorch broadcasts, whose sizes that change are expressions.

    >>> broadcast((4, 1), (3,), (sympy.Symbol("rows"), 1, 1))
    (rows, 4, 3)
    """
    most = max(map(len, shapes))
    padded = [(1,) * (most - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))


def is_computable(size: Any) -> bool:
    """True if a SizeWriter computes a size: by sums, products, quotients to integers, remainders, and extremes.

    >>> rows = sympy.Symbol("rows")
    >>> is_computable(2 * rows**2 + 1), is_computable(sympy.sqrt(rows))
    (True, False)
    """
    return all(
        node.is_Symbol
        or node.is_Rational
        or node.is_Add
        or node.is_Mul
        or is_product(node)
        or node.func.__name__ in _FUNCTIONS
        for node in sympy.preorder_traversal(sympy.sympify(expression_of(size)))
    )


def is_product(node: sympy.Expr) -> bool:
    """True if it is a power that is one size times itself.

    >>> is_product(sympy.Symbol("rows") ** 2), is_product(sympy.Symbol("rows"))
    (True, False)
    """
    return bool(node.is_Pow and node.exp.is_Integer and node.exp.is_positive)


def fixed_numbers(taken: Callable[[Call], Iterable[str] | None], device: str) -> Constraint:
    """Number and size arguments do not change, except those of the names that `taken` gives for a call.

    Of these, a SizeWriter computes the sizes. `device` names what does, for the reason of a refusal.
    """

    def check(call: Call) -> str | None:
        if not call.sizes:
            return None
        names = tuple(taken(call) or ())
        for name, value in call.arguments.items():
            for item in value if isinstance(value, tuple) else (value,):
                if item is None or isinstance(item, Operand | int | float | str) or not hasattr(item, "node"):
                    continue
                if name not in names:
                    return f"{name} = {item} changes from call to call"
                if not is_computable(item):
                    return f"{name} = {item}: {device} cannot compute this size"
        return None

    check.__doc__ = "Number and size arguments do not change from call to call, except those that give a shape."
    return check


def fixed_axes(name: str, argument: str = "dim") -> Constraint:
    """The size of a tensor along the axes that an argument names is the same in every call."""

    def check(call: Call) -> str | None:
        operand = call[name]
        for axis in axes_of(call[argument], operand.rank):
            if not is_fixed(operand.shape[axis]):
                return f"{name} {operand.shape} changes along axis {axis} from call to call"
        return None

    check.__doc__ = f"{name} keeps its size along {argument}."
    return check


class SizeWriter(ABC, Generic[ValueT]):
    """Writes into a model what computes sizes, each of them once, from the sizes of values that exist.

    A backend says how its model has the four operations below. Their values are vectors (1,) of integers.
    """

    #: For error messages.
    where: str

    def __init__(self) -> None:
        #: Expression -> a value and its axis that has this size.
        self._sources: dict[sympy.Expr, tuple[ValueT, int]] = {}
        self._made: dict[sympy.Expr, ValueT] = {}

    @abstractmethod
    def constant(self, numbers: Sequence[int]) -> ValueT:
        """Known numbers as a vector."""

    @abstractmethod
    def measured(self, value: ValueT, axis: int) -> ValueT:
        """The size of a value along an axis."""

    @abstractmethod
    def joined(self, kind: str, left: ValueT, right: ValueT) -> ValueT:
        """Two sizes by "add", "sub", "mul", "floor_div", "mod", "maximum" or "minimum"."""

    @abstractmethod
    def concatenated(self, parts: list[ValueT]) -> ValueT:
        """Two sizes or more as a vector."""

    def note(self, value: ValueT, shape: Iterable[Any]) -> None:
        """Record the sizes of a value: later ones are computed from them."""
        for axis, size in enumerate(shape):
            if isinstance(size, sympy.Expr) and not size.is_Integer:
                self._sources.setdefault(size, (value, axis))

    def vector(self, shape: Iterable[Any]) -> ValueT:
        """Sizes as a value (len(shape),). Raises LoweringError for a size that does not follow from those noted."""
        sizes = sizes_of(shape)
        if all(isinstance(size, int) for size in sizes):
            return self.constant(sizes)
        parts = [self._term(size) for size in sizes]
        return parts[0] if len(parts) == 1 else self.concatenated(parts)

    def _term(self, size: Expression) -> ValueT:
        if isinstance(size, int):
            return self.constant([size])
        found = self._made.get(size)
        if found is None:
            found = self._made[size] = self._computed(size)
        return found

    def _computed(self, size: sympy.Expr) -> ValueT:
        source = self._sources.get(size)
        if source is not None:
            return self.measured(*source)
        if size.is_Symbol:
            return self._solved(size)
        factor, rest = size.as_coeff_Mul()
        if not factor.is_Integer:
            return self._folded("floor_div", rest * factor.p, sympy.Integer(factor.q))
        if size.is_Add or size.is_Mul:
            return self._folded("add" if size.is_Add else "mul", *size.args)
        if is_product(size):
            return self._folded("mul", *[size.base] * int(size.exp))
        kind = _FUNCTIONS.get(size.func.__name__)
        if kind is None:
            raise LoweringError(f"the size {size} cannot be computed", where=self.where)
        return self._folded(kind, *size.args)

    def _folded(self, kind: str, *terms: sympy.Expr) -> ValueT:
        """Several sizes by one operation after the other."""
        first, *others = terms
        made = self._term(expression_of(first))
        for item in others:
            made = self.joined(kind, made, self._term(expression_of(item)))
        return made

    def _solved(self, symbol: sympy.Symbol) -> ValueT:
        """A symbol that is not itself the size of a value: from a multiple of it, and a sum with a number."""
        for size, source in self._sources.items():
            if size.free_symbols != {symbol} or not size.is_polynomial(symbol):
                continue
            factors = sympy.Poly(size, symbol).all_coeffs()
            if len(factors) == 2 and all(number.is_Integer for number in factors):
                less = self.joined("sub", self.measured(*source), self.constant([int(factors[1])]))
                return self.joined("floor_div", less, self.constant([int(factors[0])]))
        raise LoweringError(f"the size {symbol} is not the size of a value", where=self.where)
