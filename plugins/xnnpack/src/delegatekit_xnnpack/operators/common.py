"""Conditions and special values that several families of operators share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.support import Constraint

LARGEST: Final = torch.finfo(torch.float32).max
SMALLEST: Final = torch.finfo(torch.float32).tiny
#: Maximum number of slices for a selection: two levels of concatenation.
RUN_LIMIT: Final = 25

#: Special values that are computed differently from PyTorch, measured on the runtime of ExecuTorch 1.5.1 (x86).
POOLED_NAN: Final = "maximum pooling passes over NaN"
EXPONENTIAL_NAN: Final = "exp(NaN) is 0"
MAXIMUM_NAN: Final = "the maximum of NaN and a number is the number"
MINIMUM_NAN: Final = "the minimum of NaN and a number is the number"
ROOT_OF_INFINITY: Final = "sqrt(inf) is NaN"


def unless_float16(text: str) -> Callable[[Call], str]:
    """Special values that are too large for float16: none if the result has that type."""
    return lambda call: "" if call.result.dtype is torch.float16 else text


def not_scalar(call: Call) -> str | None:
    """No operand and no result of rank 0."""
    for operand in call.tensors:
        if operand.rank == 0:
            return f"{operand.name} has rank 0: XNNPACK works along an axis"
    return None


def not_narrowed(call: Call) -> str | None:
    """The result is not of a narrower type than the input."""
    before, after = call["self"].dtype, call.result.dtype
    if after in (before, torch.float32):
        return None
    return f"dtype = {after}: PyTorch rounds the input to it, which adds up to another sum"


def normal_number(name: str) -> Constraint:
    """Constraint: an argument is 0 or a normal float32 number."""

    def check(call: Call) -> str | None:
        value = call[name]
        if isinstance(value, int | float) and (value == 0 or SMALLEST <= abs(value) <= LARGEST):
            return None
        return f"{name} = {value} is not a normal float32 number"

    check.__doc__ = f"{name} is 0 or a normal float32 number."
    return check


def positive_number(name: str) -> Constraint:
    """Constraint: an argument is a positive normal float32 number."""

    def check(call: Call) -> str | None:
        value = call[name]
        if isinstance(value, int | float) and SMALLEST <= value <= LARGEST:
            return None
        return f"{name} = {value} is not a positive float32 number"

    check.__doc__ = f"{name} is positive."
    return check


def float32_number(name: str) -> Constraint:
    """Constraint: an argument is representable in float32, infinity and NaN included."""

    def check(call: Call) -> str | None:
        value = call[name]
        return f"{name} = {value} is not a float32 number" if overflows(value) else None

    check.__doc__ = f"{name} fits float32."
    return check


def overflows(value: float) -> bool:
    """True if a finite number exceeds float32's range."""
    return math.isfinite(value) and abs(value) > LARGEST
