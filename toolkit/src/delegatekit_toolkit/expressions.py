"""Sizes of torch.export's programs as sympy's expressions, for backends whose models compute sizes themselves.

A separate module, since sympy takes half a second to import.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]

from .narrowing import INT32_MAX

#: A size: a number, or sympy's expression if it changes from call to call.
Expression: TypeAlias = "int | sympy.Expr"


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


def is_computable(size: Any, functions: Container[str]) -> bool:
    """True if sums, products and these functions, by their names in PyTorch's expressions, compute a size.

    >>> rows = sympy.Symbol("rows")
    >>> is_computable(2 * rows**2 + 1, ()), is_computable(sympy.Max(rows, 2), ())
    (True, False)
    """
    return all(
        node.is_Symbol
        or node.is_Rational
        or node.is_Add
        or node.is_Mul
        or is_product(node)
        or node.func.__name__ in functions
        for node in sympy.preorder_traversal(sympy.sympify(expression_of(size)))
    )


def is_product(node: sympy.Expr) -> bool:
    """True if it is a power that is one size times itself.

    >>> is_product(sympy.Symbol("rows") ** 2), is_product(sympy.Symbol("rows"))
    (True, False)
    """
    return bool(node.is_Pow and node.exp.is_Integer and node.exp.is_positive)
