"""Building blocks, conditions and special values that several families of operators share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.support import Constraint

from ..ir.layout import Tensor
from ..ir.operators import BinaryKind
from ..ir.types import Shape
from .program import ProgramBuilder

LARGEST: Final = torch.finfo(torch.float32).max
SMALLEST: Final = torch.finfo(torch.float32).tiny
ADD, SUBTRACT, MULTIPLY, DIVIDE = BinaryKind.ADD, BinaryKind.SUBTRACT, BinaryKind.MULTIPLY, BinaryKind.DIVIDE
#: Maximum number of slices for a selection: two levels of concatenation.
RUN_LIMIT: Final = 25

#: Special values that are computed differently from PyTorch, measured on the runtime of ExecuTorch 1.5.1 (x86).
POOLED_NAN: Final = "maximum pooling passes over NaN"
EXPONENTIAL_NAN: Final = "exp(NaN) is 0"
MAXIMUM_NAN: Final = "the maximum of NaN and a number is the number"
MINIMUM_NAN: Final = "the minimum of NaN and a number is the number"
ROOT_OF_INFINITY: Final = "sqrt(inf) is NaN"
#: Measured on processors with AVX2; with AVX-512 both are exact.
LOGARITHM_ENDS: Final = "without AVX-512, log(inf) is 88.4 and log(NaN) a number"


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


# -- numbers -----------------------------------------------------------------------------------------------------------


def overflows(value: float) -> bool:
    """True if a finite number exceeds float32's range."""
    return math.isfinite(value) and abs(value) > LARGEST


def expand(b: ProgramBuilder, x: Tensor, shape: Shape) -> Tensor:
    """`x` repeated along axes of size 1: a product with ones, which broadcasts."""
    x = b.reshape(x, (1,) * (len(shape) - len(x.shape)) + x.shape)
    repeats = tuple(1 if have == want else want for have, want in zip(x.shape, shape, strict=True))
    return b.binary(BinaryKind.MULTIPLY, x, b.filled(repeats, 1.0))


def index_runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive ascending indices as (first, count): (3, 4, 0, 1) is (3, 2), (0, 2)."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and index == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs


def chosen(b: ProgramBuilder, x: Tensor, axis: int, indices: Sequence[int]) -> Tensor:
    """The elements of these indices along an axis."""
    return b.concatenated([b.slice(x, axis, first, count) for first, count in index_runs(indices)], axis)


def number_operand(call: Call) -> str | None:
    """A number as operand is real and fits float32."""
    for name in ("other", "alpha"):
        value = call.get(name)
        if isinstance(value, complex) or (isinstance(value, int | float) and overflows(value)):
            return f"{name} = {value} is not a float32 number"
    return None


def arithmetic(b: ProgramBuilder, kind: BinaryKind, left: Tensor | float, right: Tensor | float) -> Tensor:
    """A broadcasting elementwise function of tensors and numbers."""
    first, second = (b.scalar(item) if isinstance(item, int | float) else item for item in (left, right))
    return b.binary(kind, first, second)


def is_pointwise(call: Call) -> bool:
    """True if a convolution, as exported or in the edge dialect, multiplies each pixel with the same matrix.

    XNNPACK computes these as products of rows.
    """
    weight, padding = call["weight"], call["padding"]
    settings = (*call["stride"], call["groups"], *weight.shape[2:])
    return all(setting == 1 for setting in settings) and (isinstance(padding, str) or not any(padding))


#: Two such factors make any number that is not 0 larger than 1; XNNPACK flushes float32's smallest ones to 0.
_HUGE = 3e38


def sign(b: ProgramBuilder, x: Tensor) -> Tensor:
    """-1, 0 or 1; NaN for NaN."""
    return b.clamp(_enlarged(b, x), -1.0, 1.0)


def is_positive(b: ProgramBuilder, x: Tensor) -> Tensor:
    """1 for x > 0, else 0; NaN for NaN."""
    return b.clamp(_enlarged(b, x), 0.0, 1.0)


def _enlarged(b: ProgramBuilder, x: Tensor) -> Tensor:
    return arithmetic(b, MULTIPLY, arithmetic(b, MULTIPLY, x, _HUGE), _HUGE)
