"""Elementwise operators of several tensors: arithmetic, comparisons, logic."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, cast

from delegatekit_api import Call, Operand
from delegatekit_toolkit.composed import arithmetic, number
from delegatekit_toolkit.composed.arithmetic import exact_division
from delegatekit_toolkit.constraints import dtypes
from delegatekit_toolkit.narrowing import narrow_product, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.types import LARGEST, DataType
from ..ir.values import Value
from .common import (
    ANY,
    INTEGERS,
    NUMBERS,
    REAL,
    as_numbers,
    binary,
    operand,
    operation,
    term,
)
from .dialect import composed, truth
from .program import Lower, ProgramBuilder


def _arithmetic(kind: str, *, swapped: bool = False) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        left = operand(b, call)
        right = term(b, call, "other", left)
        alpha = call.get("alpha", 1)
        operator = kind
        if alpha < 0 and left.is_fixed:
            # A factor of integers' scale is positive: what is subtracted is added, and the other way around.
            alpha, operator = -alpha, _OPPOSITE[kind]
        if alpha != 1 and swapped:
            left = _times(b, left, alpha)
        elif alpha != 1:
            right = _times(b, right, alpha)
        datatype, encoding = b.result_type(call)
        values = (right, left) if swapped else (left, right)
        return operation(b, operator, values, datatype, encoding)

    return lower


#: The least of float16's normal numbers.
_LEAST: Final = 2.0**-14
#: What adds a number that a kind subtracts, and the other way around.
_OPPOSITE: Final = {"ElementWiseAdd": "ElementWiseSubtract", "ElementWiseSubtract": "ElementWiseAdd"}


def _times(b: ProgramBuilder, x: Value, factor: float) -> Value:
    """Numbers times a factor; integers stay as they are, and stand for as many times more."""
    found = x.tensor.encoding
    if found is None:
        return binary(b, "ElementWiseMultiply", x, factor)
    more = replace(found, scales=tuple(scale * factor for scale in found.scales)) if factor else found
    values = [x, Value(b.scalar(factor, x.tensor), ())]
    return operation(b, "ElementWiseMultiply", values, x.tensor.datatype, more)


_logical_and: Final = composed(arithmetic.logical_and, "self other")


def _product(b: ProgramBuilder, call: Call) -> Value:
    truths = call.result.dtype_name == "bool"
    return cast("Value", (_logical_and if truths else _arithmetic("ElementWiseMultiply"))(b, call))


def numbers_or_truths(call: Call) -> str | None:
    """Tensors are float32, int32 or int64; or both are bool."""
    both = isinstance(call["other"], Operand) and call["self"].dtype_name == call["other"].dtype_name == "bool"
    return None if both else NUMBERS(call)


def _compared(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        first = b.activation(call["self"])
        right = call["other"]
        second = b.activation(right) if isinstance(right, Operand) else Value(b.scalar(right, first.tensor), ())
        values = [as_numbers(b, item) for item in (first, second)]
        return operation(b, kind, values, DataType.BOOL)

    return lower


def _where(b: ProgramBuilder, call: Call) -> Value:
    condition = truth(b, b.value(call["condition"]))
    datatype, encoding = b.result_type(call)
    values = [operand(b, call, name) for name in ("self", "other")]
    if encoding is not None:
        values = [b.quantized(item, datatype, encoding) for item in values]
    if datatype is DataType.BOOL:
        made = operation(b, "ElementWiseSelect", [condition, *(as_numbers(b, item) for item in values)], DataType.INT32)
        return Value(b.cast(made.tensor, datatype), made.order)
    return operation(b, "ElementWiseSelect", [condition, *values], datatype, encoding)


def factor_of_half(call: Call) -> str | None:
    """A factor or divisor of floats is a number that float16 has with all its digits."""
    factor = call["other"]
    if not call.result.dtype.is_floating_point or call.result.quantization is not None:
        return None
    if isinstance(factor, Operand) or not factor or _LEAST <= abs(factor) <= LARGEST or math.isinf(factor):
        return None
    return f"other = {factor}: the processor computes in float16, from {_LEAST:.3g} to {LARGEST:.0f}"


def no_rounding(call: Call) -> str | None:
    """No rounding of integers' quotients."""
    return "a quotient of integers" if not call.result.dtype.is_floating_point else None


_TWO: Final = "self other"
_DIVISION: Final = (REAL, exact_division(integers=False))
_TRUTHS: Final = dtypes("bool")
_NO_NAN: Final = "the processor has no NaN"

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("add.Tensor add.Scalar", _arithmetic("ElementWiseAdd"), NUMBERS, numbers_fit, fixed=True),
    row("sub.Tensor sub.Scalar", _arithmetic("ElementWiseSubtract"), NUMBERS, numbers_fit, fixed=True),
    row("rsub.Scalar", _arithmetic("ElementWiseSubtract", swapped=True), NUMBERS, numbers_fit, fixed=True),
    row("mul.Tensor mul.Scalar", _product, numbers_or_truths, numbers_fit, narrow_product, factor_of_half, fixed=True),
    row("div.Tensor div.Scalar", _arithmetic("ElementWiseDivide"), NUMBERS, no_rounding, factor_of_half, fixed=True),
    row("maximum.default", _arithmetic("ElementWiseMaximum"), NUMBERS, fixed=True),
    row("minimum.default", _arithmetic("ElementWiseMinimum"), NUMBERS, fixed=True),
    row("fmax.default", _arithmetic("ElementWiseMaximum"), NUMBERS, keep=True, special_values=_NO_NAN),
    row("fmin.default", _arithmetic("ElementWiseMinimum"), NUMBERS, keep=True, special_values=_NO_NAN),
    row("eq.Tensor eq.Scalar", _compared("ElementWiseEqual"), ANY, numbers_fit, fixed=True),
    row("ne.Tensor ne.Scalar", _compared("ElementWiseNotEqual"), ANY, numbers_fit, fixed=True),
    row("lt.Tensor lt.Scalar", _compared("ElementWiseLess"), ANY, numbers_fit, fixed=True),
    row("le.Tensor le.Scalar", _compared("ElementWiseLessEqual"), ANY, numbers_fit, fixed=True),
    row("gt.Tensor gt.Scalar", _compared("ElementWiseGreater"), ANY, numbers_fit, fixed=True),
    row("ge.Tensor ge.Scalar", _compared("ElementWiseGreaterEqual"), ANY, numbers_fit, fixed=True),
    row("div.Tensor_mode div.Scalar_mode", composed(arithmetic.div, _TWO, "rounding_mode"), *_DIVISION),
    row("remainder.Tensor remainder.Scalar", composed(arithmetic.remainder, _TWO), *_DIVISION),
    row("fmod.Tensor fmod.Scalar", composed(arithmetic.fmod, _TWO), *_DIVISION),
    row("clamp.Tensor", composed(number.between, "self min max"), NUMBERS),
    row("bitwise_and.Tensor", _logical_and, _TRUTHS),
    row("bitwise_or.Tensor", composed(arithmetic.logical_or, _TWO), _TRUTHS),
    row("bitwise_xor.Tensor", composed(arithmetic.logical_xor, _TWO), _TRUTHS),
    row("bitwise_not.default", composed(arithmetic.bitwise_not), dtypes(*INTEGERS, "bool")),
    row("logical_and.default", _logical_and, ANY),
    row("logical_or.default", composed(arithmetic.logical_or, _TWO), ANY),
    row("logical_xor.default", composed(arithmetic.logical_xor, _TWO), ANY),
    row("logical_not.default", composed(arithmetic.logical_not), ANY),
    row("where.self", _where, ANY, fixed=True),
)
