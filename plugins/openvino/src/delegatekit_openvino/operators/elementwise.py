"""Elementwise operators: arithmetic, comparisons, logic, choices, conversions. Functions are in functions.py."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.composed import arithmetic, number
from delegatekit_toolkit.composed.arithmetic import COMPARISONS, exact_division
from delegatekit_toolkit.constraints import dtypes
from delegatekit_toolkit.narrowing import narrow_product, narrowed, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from .common import ANY, INTEGERS, LOST_NAN, NUMBERS, clamp, composed, no_nan, own, tensor


def _clamp(b: ModelBuilder, call: Call) -> Value:
    low, high = (call[name] for name in (("min", "max") if call.has("min") else ("min_val", "max_val")))
    return own(b, call, clamp(b, tensor(b, call), low, high))


def _to_type(b: ModelBuilder, call: Call) -> Value:
    return own(b, call, b.cast(tensor(b, call), call.result.dtype))


_FITTING: Final = (numbers_fit, no_nan)
#: Arguments that may be sizes which change from call to call.
_OTHER: Final = ("other",)
_TWO: Final = "self other"
_DIVISION: Final = (NUMBERS, *_FITTING, exact_division())
_BOOLS: Final = dtypes("bool")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "add.Tensor add.Scalar",
        composed(arithmetic.add, _TWO, "alpha"),
        ANY,
        *_FITTING,
        special_values=narrowed,
        sizes=_OTHER,
    ),
    row(
        "sub.Tensor sub.Scalar",
        composed(arithmetic.sub, _TWO, "alpha"),
        NUMBERS,
        *_FITTING,
        special_values=narrowed,
        sizes=_OTHER,
    ),
    row("rsub.Scalar", composed(arithmetic.rsub, _TWO, "alpha"), NUMBERS, *_FITTING, special_values=narrowed),
    row(
        "mul.Tensor mul.Scalar",
        composed(arithmetic.mul, _TWO),
        ANY,
        *_FITTING,
        narrow_product,
        special_values=narrowed,
        sizes=_OTHER,
    ),
    row("div.Tensor div.Scalar", composed(arithmetic.div, _TWO), ANY, *_FITTING, sizes=_OTHER),
    row("div.Tensor_mode div.Scalar_mode", composed(arithmetic.div, _TWO, "rounding_mode"), *_DIVISION),
    row("remainder.Tensor remainder.Scalar", composed(arithmetic.remainder, _TWO), *_DIVISION),
    row("fmod.Tensor fmod.Scalar", composed(arithmetic.fmod, _TWO), *_DIVISION),
    row("maximum.default", composed(number.maximum, _TWO), ANY, special_values=LOST_NAN),
    row("minimum.default", composed(number.minimum, _TWO), ANY, special_values=LOST_NAN),
    row("clamp.default hardtanh.default", _clamp, NUMBERS, *_FITTING, special_values=LOST_NAN),
    row("clamp.Tensor", composed(number.between, "self min max"), NUMBERS, special_values=LOST_NAN),
    *(row(f"{name}.Tensor {name}.Scalar", composed(make, _TWO), ANY, *_FITTING) for name, make in COMPARISONS.items()),
    row("logical_and.default", composed(arithmetic.logical_and, _TWO), ANY),
    row("logical_or.default", composed(arithmetic.logical_or, _TWO), ANY),
    row("logical_xor.default", composed(arithmetic.logical_xor, _TWO), ANY),
    row("bitwise_and.Tensor", composed(arithmetic.logical_and, _TWO), _BOOLS),
    row("bitwise_or.Tensor", composed(arithmetic.logical_or, _TWO), _BOOLS),
    row("bitwise_xor.Tensor", composed(arithmetic.logical_xor, _TWO), _BOOLS),
    row("logical_not.default", composed(arithmetic.logical_not), ANY),
    row("bitwise_not.default", composed(arithmetic.bitwise_not), dtypes(*INTEGERS, "bool")),
    row("where.self", composed(number.where, "condition self other"), ANY),
    row("_to_copy.default", _to_type, ANY, special_values=narrowed),
)
