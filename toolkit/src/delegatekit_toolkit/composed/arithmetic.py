"""Arithmetic, division to integers, comparisons and logic, as PyTorch's operators define them for each type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from delegatekit_api import Call

from ..narrowing import INT32_MIN
from .number import (
    Number,
    Term,
    V,
    composition,
    floor,
    maximum,
    minimum,
    ne,
    signbit,
    times,
    trunc,
    truth,
    where,
    write,
)

# -- sums and products -------------------------------------------------------------------------------------------------


def add(left: Number[V], right: Term[V], alpha: float = 1) -> Number[V]:
    """left + alpha right; of booleans, either."""
    return left | _truth(left, right) if left.is_bool else left + times(right, alpha)


def sub(left: Number[V], right: Term[V], alpha: float = 1) -> Number[V]:
    """left - alpha right"""
    return left - times(right, alpha)


def rsub(left: Number[V], right: Term[V], alpha: float = 1) -> Number[V]:
    """right - alpha left"""
    return right - times(left, alpha)


def _truth(like: Number[V], item: Term[V]) -> Number[V]:
    """A boolean of the graph, or a constant as one."""
    if isinstance(item, Number):
        return item
    return like | ~like if item else like & ~like


def weighted_sum(product: Number[V], addend: Number[V], alpha: float, beta: float) -> Number[V]:
    """alpha * product + beta * addend; with a beta of 0 PyTorch ignores the addend, and NaN in it."""
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (addend if beta == 1 else addend * beta)


def mul(left: Number[V], right: Term[V]) -> Number[V]:
    """left right; of booleans, both."""
    return left & _truth(left, right) if left.is_bool else left * right


def div(left: Number[V], right: Term[V], rounding_mode: str | None = None) -> Number[V]:
    """left / right, as it is, or an integer: the next below ("floor") or towards 0 ("trunc")."""
    if rounding_mode is None:
        return left / right
    return floor_divide(left, right) if rounding_mode == "floor" else _truncated_quotient(left, right)


@composition
def floor_divide(left: Number[V], right: Term[V]) -> Number[V]:
    """The largest integer that is at most the quotient."""
    return floor(left / right)


def _truncated_quotient(left: Number[V], right: Term[V]) -> Number[V]:
    """The quotient without its fraction; of integers, the next below, or above it if that is negative and no quotient.

    (Sizes of integers would do, but the least one has none.)
    """
    if left.is_float:
        return trunc(left / right)
    below = floor_divide(left, right)
    return where((below < 0) & ~(below * right).equals(left), below + 1, below)


def remainder(left: Number[V], right: Term[V]) -> Number[V]:
    """The rest of a division to the next integer below."""
    return left - floor_divide(left, right) * right


def fmod(left: Number[V], right: Term[V]) -> Number[V]:
    """The rest of a division towards 0."""
    return left - _truncated_quotient(left, right) * right


def exact_division(
    least: float = 2.0**-8, most: float = 2.0**8, *, integers: bool = True
) -> Callable[[Call], str | None]:
    """A constraint: integers other than 0, or a known power of two; other quotients are rounded before they are made
    integers, which may be the wrong ones. `least` and `most` bound the power, `integers` says that integers divide."""

    def check(call: Call) -> str | None:
        other = call["other"]
        number = other if isinstance(other, int | float) else None
        if call.get("rounding_mode", "floor") is None:
            return None
        if integers and not call["self"].dtype.is_floating_point:
            # (The least number has no size in 32 bits.)
            return f"other = {number}" if number in (0, INT32_MIN) else None
        exact = (
            number is not None
            and math.isfinite(number)
            and abs(math.frexp(number)[0]) == 0.5
            and least <= abs(number) <= most
        )
        return None if exact else f"other = {'a tensor' if number is None else number}: a power of two is taken"

    kinds = "Integers, or a" if integers else "A"
    check.__doc__ = (
        f"{kinds} divisor that is a known power of two: other quotients are rounded before they are integers."
    )
    return check


# -- signs and choices -------------------------------------------------------------------------------------------------


def copysign(x: Number[V], other: Term[V]) -> Number[V]:
    """|x| with the sign of the other one, of zeros, too."""
    size = abs(x)
    if not isinstance(other, Number):
        return size * math.copysign(1, other)
    return where(signbit(other), -size, size)


def fmax(left: Number[V], right: Number[V]) -> Number[V]:
    """The larger of two; of a number and NaN, the number."""
    return _but_nan(left, right, maximum(left, right))


def fmin(left: Number[V], right: Number[V]) -> Number[V]:
    """The smaller of two; of a number and NaN, the number."""
    return _but_nan(left, right, minimum(left, right))


def _but_nan(left: Number[V], right: Number[V], found: Number[V]) -> Number[V]:
    if not left.is_float:
        return found
    # NaN does not equal itself.
    return where(left.equals(left), where(right.equals(right), found, left), right)


# -- comparisons and logic ---------------------------------------------------------------------------------------------


#: Name -> comparison.
COMPARISONS: Final[Mapping[str, Callable[..., Number[Any]]]] = {
    "eq": Number.equals,
    "ne": ne,
    "lt": Number.__lt__,
    "le": Number.__le__,
    "gt": Number.__gt__,
    "ge": Number.__ge__,
}


def logical_and(left: Number[V], right: Number[V]) -> Number[V]:
    """Both are not 0."""
    return truth(left) & truth(right)


def logical_or(left: Number[V], right: Number[V]) -> Number[V]:
    """One at least is not 0."""
    return truth(left) | truth(right)


@composition
def xor(left: Number[V], right: Number[V]) -> Number[V]:
    """One of two booleans."""
    return (left | right) & ~(left & right)


def logical_xor(left: Number[V], right: Number[V]) -> Number[V]:
    """One of two is not 0."""
    return xor(truth(left), truth(right))


def logical_not(x: Number[V]) -> Number[V]:
    """True where the number is 0."""
    return ~truth(x)


def bitwise_and(left: Number[V], right: Term[V]) -> Number[V]:
    """The bits of both; of booleans, both."""
    return left & _truth(left, right) if left.is_bool else write("bitwise_and", left, right)


def bitwise_or(left: Number[V], right: Term[V]) -> Number[V]:
    """The bits of either; of booleans, either."""
    return left | _truth(left, right) if left.is_bool else write("bitwise_or", left, right)


def bitwise_xor(left: Number[V], right: Term[V]) -> Number[V]:
    """The bits of one alone; of booleans, one of two."""
    return xor(left, _truth(left, right)) if left.is_bool else write("bitwise_xor", left, right)


#: Name -> what joins the bits of two numbers.
BITS: Final[Mapping[str, Callable[..., Number[Any]]]] = {
    "bitwise_and": bitwise_and,
    "bitwise_or": bitwise_or,
    "bitwise_xor": bitwise_xor,
}


@composition
def bitwise_not(x: Number[V]) -> Number[V]:
    """The other bits, which are those of -1 - x."""
    return ~x if x.is_bool else -1 - x
