"""Constraints of arithmetic, activations and what is composed of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from delegatekit_api import Constraint, ProgramView

from ..arguments import argument, shape_of
from ..lowering import elementwise, steps
from .general import LARGEST, SMALLEST, overflows

if TYPE_CHECKING:
    from torch.fx import Node


def number_operand(node: Node, program: ProgramView) -> str | None:
    """A number as operand is real and fits float32."""
    for name in ("other", "alpha"):
        if not any(parameter.name == name for parameter in node.target._schema.arguments):  # type: ignore[union-attr]
            continue
        value = argument(node, name)
        if isinstance(value, complex) or (isinstance(value, int | float) and overflows(value)):
            return f"{name} = {value} is not a float32 number"
    return None


def exact_power(node: Node, program: ProgramView) -> str | None:
    """The exponent, or its negative, is a whole number to 8 or a multiple of 1/4 to 4, but not 0."""
    exponent = argument(node, "exponent")
    if isinstance(exponent, int | float) and elementwise.exact_exponent(exponent):
        return None
    return f"exponent {exponent}: XNNPACK has no power function, only 1 to 8 and quarters to 4 can be composed"


def ordered_bounds(node: Node, program: ProgramView) -> str | None:
    """The lower bound is not above the upper, and neither is NaN."""
    low, high = elementwise.clamp_bounds(node)
    return None if low <= high else f"bounds {low} and {high} are not an interval"


def plain_elu(node: Node, program: ProgramView) -> str | None:
    """input_scale is 1, and alpha is positive."""
    if argument(node, "input_scale") != 1:
        return f"input_scale = {argument(node, 'input_scale')}: XNNPACK's ELU has none"
    alpha = argument(node, "alpha")
    return None if SMALLEST <= alpha <= LARGEST else f"alpha = {alpha}: XNNPACK's ELU wants a positive number"


def slope_per_channel(node: Node, program: ProgramView) -> str | None:
    """One slope, or one for each channel."""
    slopes, shape = math.prod(shape_of(argument(node, "weight"))), shape_of(argument(node, "self"))
    if slopes == 1 or (len(shape) > 1 and slopes == shape[1]):
        return None
    return f"{slopes} slopes for an input of shape {shape}"


# -- composed ----------------------------------------------------------------------------------------------------------


def finite_numbers(*names: str) -> Constraint:
    """Constraint: the named arguments are finite in float32."""

    def check(node: Node, program: ProgramView) -> str | None:
        for name in names:
            value = argument(node, name)
            if not isinstance(value, int | float) or not abs(value) <= torch.finfo(torch.float32).max:
                return f"{name} = {value} is not a finite float32 number"
        return None

    check.__doc__ = f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} finite."
    return check


def positive_number(name: str) -> Constraint:
    """Constraint: an argument is a positive normal float32 number, or infinite."""

    def check(node: Node, program: ProgramView) -> str | None:
        value = argument(node, name)
        limits = torch.finfo(torch.float32)
        if isinstance(value, int | float) and limits.tiny <= value <= limits.max:
            return None
        return f"{name} = {value} is not a positive float32 number"

    check.__doc__ = f"{name} is positive."
    return check


def late_threshold(node: Node, program: ProgramView) -> str | None:
    """The threshold is 17 or more: from there on, float32 has no difference between x and softplus(x)."""
    threshold = argument(node, "threshold")
    return None if threshold >= 17 else f"threshold = {threshold}: XNNPACK's nodes compute no threshold below 17"


def short_divisors(node: Node, program: ProgramView) -> str | None:
    """Rounded down, the divisors are constants of few binary digits: then quotients are never rounded up to a whole."""
    if argument(node, "rounding_mode") != "floor":
        return None
    divisors = steps.divisors(node, program)
    if divisors is None:
        return "other is computed: its quotients may be rounded up to the next whole number"
    bits = steps.significant_bits(divisors)
    return None if bits <= _SHORT else f"other has {bits} binary digits: quotients may be rounded up to a whole number"


#: With so many digits, products with whole numbers to 2^21 are exact; beyond, one more or less is within rounding.
_SHORT = 3


def powers_of_two(node: Node, program: ProgramView) -> str | None:
    """The divisors are constants, powers of two from 1 on: no step rounds."""
    divisors = steps.divisors(node, program)
    if divisors is None:
        return "other is computed: products of rounded quotients are not exact"
    if not isinstance(argument(node, "self"), int | float) and steps.significant_bits(divisors) == 1:
        return None if bool((divisors.abs() >= 1).all()) else "other is less than 1: quotients may overflow"
    return "other is not a power of two: products of rounded quotients are not exact"


def masked_constant(node: Node, program: ProgramView) -> str | None:
    """The condition is a constant, and so is one of the sides, without NaN."""
    found = elementwise.filled_by_mask(node, program)
    if found is None:
        return "the condition, or both sides, are computed: XNNPACK has no comparison"
    return "the constant side has a NaN" if bool(found[1].isnan().any()) else None
