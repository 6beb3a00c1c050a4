"""Sizes that change from call to call: symbolic facts about them, and their bounds.

A changing size is a torch.SymInt, whose expression is over symbols that stand for sizes of the inputs (or for numbers
that are read out of tensors). Rules compute with SymInts as with ints, but must not compare them: Python would take
the example's size for the answer. `same`, `is_one` and similar functions return facts that hold in every call.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from delegatekit_api import UnsupportedError
from delegatekit_toolkit.symbols import most

aten = torch.ops.aten

#: The dimensions of an image (N, C, H, W) in channels-last order, outermost first.
CHANNELS_LAST: Final = (0, 2, 3, 1)
#: An int, or a SymInt that stands for one.
Size: TypeAlias = Any
Shape: TypeAlias = tuple[Size, ...]

SYMBOLIC: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)


def known_true(condition: Any) -> bool:
    """True if a condition on sizes is known to hold in every call."""
    return statically_known_true(condition)


def same(first: Size, second: Size) -> bool:
    """True if two sizes are known to be equal in every call."""
    if isinstance(first, int) and isinstance(second, int):
        return first == second
    return known_true(first == second)


def same_shape(first: Sequence[Size], second: Sequence[Size]) -> bool:
    """True if two shapes are equal in every call."""
    return len(first) == len(second) and all(map(same, first, second))


def is_static(shape: Iterable[Size]) -> bool:
    """True if no size changes from call to call."""
    return all(isinstance(size, int) for size in shape)


def is_channels_last(value: torch.Tensor) -> bool:
    """True if an image (N, C, H, W) is known to lie in memory as (N, H, W, C) in every call."""
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
    """True if a node's value is a number that is computed in the graph."""
    return isinstance(value, SYMBOLIC)


def is_size_node(node: Any) -> bool:
    """True if a node computes a size from other sizes or from a shape: it costs nothing and may be repeated."""
    return (
        isinstance(node, Node)
        and node.op == "call_function"
        and (node.target is aten.sym_size.int or not isinstance(node.target, torch._ops.OperatorBase))
        and is_size(node.meta.get("val"))
    )


def computes_size(target: Any, value: Any) -> bool:
    """True if a call computes a number from numbers or shapes, so that its value determines it."""
    if not isinstance(value, (int, float, bool, *SYMBOLIC)):
        return False
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.startswith("aten::sym_")
    return target is not operator.getitem


def expression(value: Any) -> Any:
    """A hashable stand-in for a size: the int itself, or the expression of a symbolic one."""
    return value.node.expr if isinstance(value, SYMBOLIC) else value


def affine(expr: sympy.Expr) -> tuple[sympy.Symbol, int, int] | None:
    """Symbol, factor and offset, so that the expression is factor * symbol + offset; None if it has no such form."""
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
    """The smallest value of a size. PyTorch's bound of 2 is ignored: it assumes traced sizes of 2 or more."""
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
    bound = most(size)
    return bound if bound is not None and bound < (1 << 48) else None


def upper_shape(shape: Iterable[Size], where: str) -> tuple[int, ...]:
    """The largest sizes. Raises UnsupportedError for one without a bound, since memory is planned for the largest."""
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
    """Refuse, where PyTorch would answer a question about a changing size by the example's size.

    `builder` is the edge builder at work: it has the node that is being translated.
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


#: The exceptions of PyTorch there.
_GuardError: Final[Any] = getattr(torch.fx.experimental.symbolic_shapes, "_ShapeEnvGuardError", ())
