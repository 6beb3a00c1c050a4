"""Elementwise operators of several tensors: arithmetic, comparisons, logic."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, cast

from delegatekit_api import Call, Operand
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
    apply,
    as_numbers,
    binary,
    div,
    larger,
    lesser,
    mul,
    operand,
    operation,
    sub,
    term,
    truncated,
)
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


def _product(b: ProgramBuilder, call: Call) -> Value:
    truths = call.result.dtype_name == "bool"
    return cast("Value", (_logical("ElementWiseAnd") if truths else _arithmetic("ElementWiseMultiply"))(b, call))


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


def _logical(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        values = [truth(b, b.value(call[name])) for name in ("self", "other")]
        return operation(b, kind, values, DataType.BOOL)

    return lower


def truth(b: ProgramBuilder, value: Value) -> Value:
    """Whether numbers are not 0."""
    value = b.floats(value)
    if value.tensor.datatype is DataType.BOOL:
        return value
    zero = Value(b.scalar(0, value.tensor), ())
    return operation(b, "ElementWiseNotEqual", [value, zero], DataType.BOOL)


def _not(b: ProgramBuilder, call: Call) -> Value:
    x = truth(b, b.value(call["self"]))
    return Value(apply(b, "ElementWiseNot", [x.tensor], DataType.BOOL), x.order)


def _other_bits(b: ProgramBuilder, call: Call) -> Value:
    x = b.value(call["self"])
    # The bits of -1 - x are the others.
    return _not(b, call) if x.tensor.datatype is DataType.BOOL else sub(b, -1, x)


def _clamp_between(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    for name, join in (("min", larger), ("max", lesser)):
        if call[name] is not None:
            x = join(b, x, operand(b, call, name))
    return x


def _whole_quotient(b: ProgramBuilder, left: Value, right: Value, mode: str) -> Value:
    quotient = div(b, left, right)
    return (
        truncated(b, quotient)
        if mode == "trunc"
        else Value(apply(b, "ElementWiseFloor", [quotient.tensor], DataType.FLOAT32), quotient.order)
    )


def _divided_to_whole(b: ProgramBuilder, call: Call) -> Value:
    left = operand(b, call)
    right = term(b, call, "other", left)
    mode = call.get("rounding_mode", "floor")
    return div(b, left, right) if mode is None else _whole_quotient(b, left, right, mode)


def _remainder(mode: str) -> Lower:
    """What a division leaves."""

    def lower(b: ProgramBuilder, call: Call) -> Value:
        left = operand(b, call)
        right = term(b, call, "other", left)
        return sub(b, left, mul(b, _whole_quotient(b, left, right, mode), right))

    return lower


def exact_division(call: Call) -> str | None:
    """By a power of two: other quotients are rounded before they are made whole."""
    other = call["other"]
    if call.get("rounding_mode", "floor") is None:
        return None
    if not isinstance(other, int | float):
        return "other is a tensor: a power of two is taken"
    exact = math.isfinite(other) and math.frexp(other)[0] in (0.5, -0.5) and 2**-8 <= abs(other) <= 2**8
    return None if exact else f"other = {other}: a power of two is taken"


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
    row("div.Tensor_mode div.Scalar_mode", _divided_to_whole, REAL, exact_division),
    row("remainder.Tensor remainder.Scalar", _remainder("floor"), REAL, exact_division),
    row("fmod.Tensor fmod.Scalar", _remainder("trunc"), REAL, exact_division),
    row("clamp.Tensor", _clamp_between, NUMBERS),
    row("bitwise_and.Tensor", _logical("ElementWiseAnd"), _TRUTHS),
    row("bitwise_or.Tensor", _logical("ElementWiseOr"), _TRUTHS),
    row("bitwise_xor.Tensor", _logical("ElementWiseXor"), _TRUTHS),
    row("bitwise_not.default", _other_bits, dtypes(*INTEGERS, "bool")),
    row("logical_and.default", _logical("ElementWiseAnd"), ANY),
    row("logical_or.default", _logical("ElementWiseOr"), ANY),
    row("logical_xor.default", _logical("ElementWiseXor"), ANY),
    row("logical_not.default", _not, ANY),
    row("where.self", _where, ANY, fixed=True),
)
