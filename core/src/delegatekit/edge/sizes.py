"""Sizes that change from call to call: what is known about them, their bounds, and the nodes that compute them.

A changing size is a torch.SymInt, whose expression is over symbols that stand for sizes of the inputs (or for numbers
that are read out of tensors). Rules compute with SymInts as with ints, but must not compare them: Python would take
the example's size for the answer. `same`, `is_one` and their like say only what holds for every call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from delegatekit_api import LoweringError, UnsupportedError

aten = torch.ops.aten

#: The dimensions of an image (N, C, H, W) whose channels lie together, outermost first.
CHANNELS_LAST: Final = (0, 2, 3, 1)
#: An int, or a SymInt that stands for one.
Size: TypeAlias = Any
Shape: TypeAlias = tuple[Size, ...]

SYMBOLIC: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)


def known_true(condition: Any) -> bool:
    """Whether a condition on sizes holds in every call, as far as it is known."""
    return statically_known_true(condition)


def same(first: Size, second: Size) -> bool:
    """Whether two sizes are equal in every call, as far as it is known."""
    if isinstance(first, int) and isinstance(second, int):
        return first == second
    return known_true(first == second)


def same_shape(first: Sequence[Size], second: Sequence[Size]) -> bool:
    """Whether two shapes are equal in every call."""
    return len(first) == len(second) and all(map(same, first, second))


def is_static(shape: Iterable[Size]) -> bool:
    """Whether no size changes from call to call."""
    return all(isinstance(size, int) for size in shape)


def is_channels_last(value: torch.Tensor) -> bool:
    """Whether an image (N, C, H, W) lies in memory as (N, H, W, C) in every call, as far as it is known."""
    return value.dim() == 4 and _is_dense(value, CHANNELS_LAST) and not _is_dense(value, range(4))


def _is_dense(value: torch.Tensor, order: Sequence[int]) -> bool:
    step: Size = 1
    for axis in reversed(order):
        size = value.shape[axis]
        if not same(size, 1) and not same(value.stride(axis), step):
            return False
        step = step * size
    return True


def is_size(value: Any) -> bool:
    """Whether a node's value is a number that is computed in the graph."""
    return isinstance(value, SYMBOLIC)


def is_size_node(node: Any) -> bool:
    """Whether a node computes a size from other sizes or from a shape: it costs nothing and may be repeated."""
    return (
        isinstance(node, Node)
        and node.op == "call_function"
        and (node.target is aten.sym_size.int or not isinstance(node.target, torch._ops.OperatorBase))
        and is_size(node.meta.get("val"))
    )


def computes_size(target: Any, value: Any) -> bool:
    """Whether a call computes a number from numbers or shapes, so that its value says all about it."""
    if not isinstance(value, (int, float, bool, *SYMBOLIC)):
        return False
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.startswith("aten::sym_")
    return target is not operator.getitem


def expression(value: Any) -> Any:
    """A hashable stand-in for a size: the int itself, or the expression of a symbolic one."""
    return value.node.expr if isinstance(value, SYMBOLIC) else value


def affine(expr: sympy.Expr) -> tuple[sympy.Symbol, int, int] | None:
    """Symbol, factor and offset, so that the expression is factor * symbol + offset; None if it is no such thing."""
    symbols = expr.free_symbols
    if len(symbols) != 1 or not expr.is_polynomial(*symbols):
        return None
    (symbol,) = symbols
    poly = sympy.Poly(expr, symbol)
    if poly.degree() != 1 or not all(number.is_Integer for number in poly.all_coeffs()):
        return None
    factor, offset = map(int, poly.all_coeffs())
    return symbol, factor, offset


def lower_bound(size: Size) -> int:
    """The smallest value that a size can have. PyTorch's bound of 2 is none: it takes traced sizes for 2 or more."""
    if isinstance(size, int):
        return size
    node = size.node
    terms = affine(node.expr)
    if terms is None:
        return 0
    symbol, factor, offset = terms
    least = node.shape_env.bound_sympy(symbol).lower
    known = int(least) if factor > 0 and least.is_Integer and least > 2 else 0
    return max(factor * known + offset, 0)


def upper_bound(size: Size) -> int | None:
    """The largest value that a size can have; None if it has no bound."""
    if isinstance(size, int):
        return size
    node = size.node
    bound = node.shape_env.bound_sympy(node.expr).upper
    return int(bound) if getattr(bound, "is_Integer", False) and bound < (1 << 48) else None


def upper_shape(shape: Iterable[Size], where: str) -> tuple[int, ...]:
    """The largest sizes. Raises UnsupportedError for one without a bound: memory is planned for the largest."""
    result = []
    for size in shape:
        bound = upper_bound(size)
        if bound is None:
            raise UnsupportedError(
                f"has a size without an upper bound: {size}",
                where=where,
                hint="give the dimension one: torch.export.Dim('name', max=...), or torch._check(size <= ...)",
            )
        result.append(bound)
    return tuple(result)


@contextmanager
def no_guards(builder: Any) -> Iterator[None]:
    """Refuse, where PyTorch would take the example's size for the answer to a question about a changing one.

    `builder` is the edge builder at work: it knows the node that is being translated.
    """
    shape_env = builder.fake_mode.shape_env
    if shape_env is None or not shape_env.var_to_range:
        yield
        return
    guard = getattr(shape_env, "error_on_new_guards", None)
    if guard is None:
        raise UnsupportedError(
            f"has sizes that change from call to call, which PyTorch {torch.__version__} cannot lower safely",
            where="exported program",
            hint="pip install 'torch>=2.13', or export with static shapes",
        )
    try:
        with guard():
            yield
    except _GuardError as error:
        builder.refuse(
            f"its lowering depends on a size that changes from call to call ({error})",
            hint="export with that size fixed, or with a narrower range",
        )


#: What PyTorch raises there.
_GuardError: Final[Any] = getattr(torch.fx.experimental.symbolic_shapes, "_ShapeEnvGuardError", ())

#: Functions on numbers -> how Python's operator of that meaning is written in a graph.
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
        """From now on, sizes may be taken from this value: a tensor's shape, or a number computed in the graph."""
        value: Any = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    self._sources.setdefault(size.node.expr, (node, axis))
        elif is_size(value):
            self._known.setdefault(value.node.expr, node)

    def can(self, value: Any) -> bool:
        """Whether a symbolic number can be computed from what was offered."""
        wanted = expression(value)
        if not isinstance(wanted, sympy.Basic) or wanted in self._known or wanted in self._sources:
            return True
        return all(self._solution(symbol) is not None for symbol in wanted.free_symbols)

    def node(self, value: Any) -> Any:
        """The node that computes a symbolic number; the number itself if it is a constant.

        Raises LoweringError if it cannot be computed from what was offered.
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
        # A term with a minus is subtracted: sizes are not negative on the way, and it is one instruction less.
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
