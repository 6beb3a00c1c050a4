"""Elementwise operators: arithmetic, comparisons, logic, choices, conversions. Functions are in functions.py."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.composed import arithmetic, number
from delegatekit_toolkit.composed.arithmetic import COMPARISONS, exact_division
from delegatekit_toolkit.narrowing import narrow_product, narrowed, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Tensor
from .common import FLOATS, INTEGERS, composed, converted, flat_rank, four_axes, types
from .program import Lower, ProgramBuilder


def _to_type(b: ProgramBuilder, call: Call) -> Tensor:
    return converted(b, b.tensor(call["self"]), b.result_type(call))


def wide_result(call: Call) -> str:
    """Numbers for which a conversion is not PyTorch's."""
    return "numbers beyond 32 bits become the largest of 32" if narrowed(call) else ""


def few_axes_towards_zero(call: Call) -> str | None:
    """At most 4 axes where quotients lose their fraction: the runtime keeps operands in textures."""
    return four_axes(call) if call["rounding_mode"] == "trunc" else None


_NUMBERS: Final = (types(*FLOATS, *INTEGERS), numbers_fit)
_ANY: Final = (types(*FLOATS, *INTEGERS, "bool"), numbers_fit)
_BOOLS: Final = types("bool")
_SELF: Final = types(*FLOATS, of=("self",))
_TWO: Final = "self other"
#: Of the arguments of arithmetic, a number beside a tensor may change from call to call.
_OTHER: Final = ("other",)
_DIVISION: Final = (*_NUMBERS, exact_division(1e-30, float("inf")))

ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "add.Tensor add.Scalar",
        composed(arithmetic.add, _TWO, "alpha"),
        *_ANY,
        special_values=narrowed,
        takes_sizes=_OTHER,
    ),
    row(
        "sub.Tensor sub.Scalar",
        composed(arithmetic.sub, _TWO, "alpha"),
        *_NUMBERS,
        special_values=narrowed,
        takes_sizes=_OTHER,
    ),
    row(
        "rsub.Scalar",
        composed(arithmetic.rsub, _TWO, "alpha"),
        *_NUMBERS,
        special_values=narrowed,
        takes_sizes=_OTHER,
    ),
    row(
        "mul.Tensor mul.Scalar",
        composed(arithmetic.mul, _TWO),
        *_ANY,
        narrow_product,
        special_values=narrowed,
        takes_sizes=_OTHER,
    ),
    row("div.Tensor div.Scalar", composed(arithmetic.div, _TWO), *_ANY, takes_sizes=_OTHER),
    row(
        "div.Tensor_mode div.Scalar_mode",
        composed(arithmetic.div, _TWO, "rounding_mode"),
        *_NUMBERS,
        few_axes_towards_zero,
        takes_sizes=_OTHER,
    ),
    row("remainder.Tensor remainder.Scalar", composed(arithmetic.remainder, _TWO), *_DIVISION),
    row("fmod.Tensor fmod.Scalar", composed(arithmetic.fmod, _TWO), *_DIVISION, four_axes),
    row("maximum.default", composed(number.maximum, _TWO), *_ANY, flat_rank),
    row("minimum.default", composed(number.minimum, _TWO), *_ANY),
    row("fmax.default", composed(arithmetic.fmax, _TWO), *_NUMBERS, four_axes),
    row("fmin.default", composed(arithmetic.fmin, _TWO), *_NUMBERS, four_axes),
    row("clamp.Tensor", composed(number.between, "self min max"), *_NUMBERS, flat_rank),
    row("copysign.Tensor copysign.Scalar", composed(arithmetic.copysign, _TWO), types(*FLOATS), four_axes),
    row("signbit.default", composed(number.signbit), types(*FLOATS, *INTEGERS, of=("self",)), flat_rank),
    *(
        row(f"{name}.Tensor {name}.Scalar", composed(make, _TWO), *_ANY, takes_sizes=_OTHER)
        for name, make in COMPARISONS.items()
    ),
    row("logical_and.default", composed(arithmetic.logical_and, _TWO), *_ANY),
    row("logical_or.default", composed(arithmetic.logical_or, _TWO), *_ANY),
    row("logical_xor.default", composed(arithmetic.logical_xor, _TWO), *_ANY),
    row("bitwise_and.Tensor", composed(arithmetic.logical_and, _TWO), _BOOLS),
    row("bitwise_or.Tensor", composed(arithmetic.logical_or, _TWO), _BOOLS),
    row("bitwise_xor.Tensor", composed(arithmetic.logical_xor, _TWO), _BOOLS),
    row("logical_not.default", composed(arithmetic.logical_not), *_ANY),
    row("bitwise_not.default", composed(arithmetic.bitwise_not), types(*INTEGERS, "bool")),
    row("isnan.default", composed(number.isnan), _SELF),
    row("isinf.default", composed(number.isinf), _SELF, flat_rank),
    row("where.self", composed(number.where, "condition self other"), *_ANY, four_axes),
    row("_to_copy.default", _to_type, *_ANY, special_values=wide_result),
)
