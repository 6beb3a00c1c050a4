"""Elementwise operators of several tensors: arithmetic, comparisons, logic."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.constraints import dtypes
from delegatekit_toolkit.narrowing import narrow_product, whole_numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.types import DataType
from ..ir.values import Value
from .common import ANY, NUMBERS, REAL, binary, operand, operation, term
from .program import Lower, ProgramBuilder


def _arithmetic(kind: str, *, swapped: bool = False) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        left = operand(b, call)
        right = term(b, call, "other", left)
        alpha = call.get("alpha", 1)
        if alpha != 1:
            right = binary(b, "ElementWiseMultiply", right, alpha)
        datatype, encoding = b.result_type(call)
        values = (right, left) if swapped else (left, right)
        return operation(b, kind, values, datatype, encoding)

    return lower


def _compared(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        first = b.activation(call["self"])
        right = call["other"]
        second = b.activation(right) if isinstance(right, Operand) else Value(b.scalar(right, first.tensor), ())
        values = [number(b, item) for item in (first, second)]
        if values[0].tensor.datatype is not values[1].tensor.datatype and not values[0].is_fixed:
            values = [Value(b.cast(item.tensor, DataType.FLOAT32), item.order) for item in values]
        return operation(b, kind, values, DataType.BOOL)

    return lower


def number(b: ProgramBuilder, value: Value) -> Value:
    """Truth values as integers: QNN compares numbers only."""
    if value.tensor.datatype is DataType.BOOL:
        return Value(b.cast(value.tensor, DataType.INT32), value.order)
    return value


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
    return Value(b.emit("ElementWiseNot", [x.tensor], x.tensor.shape, DataType.BOOL), x.order)


def _where(b: ProgramBuilder, call: Call) -> Value:
    condition = truth(b, b.value(call["condition"]))
    datatype, encoding = b.result_type(call)
    values = [operand(b, call, name) for name in ("self", "other")]
    if encoding is not None:
        values = [b.quantized(item, datatype, encoding) for item in values]
    return operation(b, "ElementWiseSelect", [condition, *values], datatype, encoding)


def plain_numbers(call: Call) -> str | None:
    """A number beside integers is an integer, and its product with `alpha` too."""
    if call.result.dtype_name.startswith("float") or call.result.dtype_name == "bool":
        return None
    for name in ("other", "alpha"):
        if isinstance(call.get(name), float):
            return f"{name} = {call[name]} beside integers"
    return None


def no_rounding(call: Call) -> str | None:
    """No rounding of integers' quotients."""
    return "a quotient of integers" if not call.result.dtype.is_floating_point else None


_SUMS: Final = (NUMBERS, plain_numbers, whole_numbers_fit)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("add.Tensor add.Scalar", _arithmetic("ElementWiseAdd"), *_SUMS, fixed=True),
    row("sub.Tensor sub.Scalar", _arithmetic("ElementWiseSubtract"), *_SUMS, fixed=True),
    row("rsub.Scalar", _arithmetic("ElementWiseSubtract", swapped=True), *_SUMS, fixed=True),
    row("mul.Tensor mul.Scalar", _arithmetic("ElementWiseMultiply"), *_SUMS, narrow_product, fixed=True),
    row("div.Tensor div.Scalar", _arithmetic("ElementWiseDivide"), NUMBERS, no_rounding, fixed=True),
    row("maximum.default", _arithmetic("ElementWiseMaximum"), NUMBERS, fixed=True),
    row("minimum.default", _arithmetic("ElementWiseMinimum"), NUMBERS, fixed=True),
    row("pow.Tensor_Tensor", _arithmetic("ElementWisePower"), REAL),
    row("eq.Tensor eq.Scalar", _compared("ElementWiseEqual"), ANY, fixed=True),
    row("ne.Tensor ne.Scalar", _compared("ElementWiseNotEqual"), ANY, fixed=True),
    row("lt.Tensor lt.Scalar", _compared("ElementWiseLess"), ANY, fixed=True),
    row("le.Tensor le.Scalar", _compared("ElementWiseLessEqual"), ANY, fixed=True),
    row("gt.Tensor gt.Scalar", _compared("ElementWiseGreater"), ANY, fixed=True),
    row("ge.Tensor ge.Scalar", _compared("ElementWiseGreaterEqual"), ANY, fixed=True),
    row("logical_and.default", _logical("ElementWiseAnd"), ANY),
    row("logical_or.default", _logical("ElementWiseOr"), ANY),
    row("logical_xor.default", _logical("ElementWiseXor"), ANY),
    row("logical_not.default", _not, ANY),
    row("bitwise_and.Tensor", _logical("ElementWiseAnd"), dtypes("bool")),
    row("bitwise_or.Tensor", _logical("ElementWiseOr"), dtypes("bool")),
    row("bitwise_xor.Tensor", _logical("ElementWiseXor"), dtypes("bool")),
    row("bitwise_not.default", _not, dtypes("bool")),
    row("where.self", _where, ANY, fixed=True),
)
