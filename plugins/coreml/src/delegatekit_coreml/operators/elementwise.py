"""Elementwise operators: arithmetic, comparisons, logic, choices, conversions. Functions are in functions.py."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.constraints import dtypes
from delegatekit_toolkit.narrowing import narrow_product, narrowed, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of
from ..ir.sizes import sizes_of
from ..ir.types import DataType
from .common import (
    ANY,
    INTEGERS,
    NUMBERS,
    REAL,
    Term,
    binary,
    broadcast,
    clamp,
    div,
    expanded,
    floating,
    mul,
    no_nan,
    sub,
    tensor,
    unary,
    where,
)
from .program import Lower, ProgramBuilder

# -- arithmetic --------------------------------------------------------------------------------------------------------


def _operands(b: ProgramBuilder, call: Call) -> tuple[Var, Term]:
    """Both operands; a number stays one."""
    other, left = call["other"], tensor(b, call)
    if isinstance(other, Operand):
        return left, b.value(other)
    return left, other if is_fixed_number(other) else b.cast(b.size(other), datatype_of(left))


def is_fixed_number(item: object) -> bool:
    """Whether it is a number, and not a value or a size that changes."""
    return isinstance(item, int | float)


def _binary(kind: str, of_truths: str = "") -> Lower:
    """An operation, and the one that means the same for booleans."""

    def lower(b: ProgramBuilder, call: Call) -> Var:
        left, right = _operands(b, call)
        is_truth = datatype_of(left) is DataType.BOOL
        if is_truth and isinstance(right, int | float):
            right = b.number(bool(right), DataType.BOOL)
        return binary(b, of_truths if is_truth else kind, left, right)

    return lower


def _sum(kind: str, *, reverse: bool = False) -> Lower:
    """With `alpha`, the factor of the second operand (reversed: of the first)."""

    def lower(b: ProgramBuilder, call: Call) -> Var:
        left, right = _operands(b, call)
        if datatype_of(left) is DataType.BOOL:
            return _binary("", "logical_or")(b, call)
        if reverse:
            left, right = right, left
        alpha = call["alpha"]
        if alpha != 1:
            right = right * alpha if isinstance(right, int | float) else mul(b, right, alpha)
        return binary(b, kind, left, right)

    return lower


def _divided(b: ProgramBuilder, call: Call) -> Var:
    other = call["other"]
    if isinstance(other, Operand):
        other = b.value(other)
    elif not is_fixed_number(other):
        other = b.size(other)
    return div(b, floating(b, call), other if is_fixed_number(other) else b.cast(other, b.result_type(call)))


def truncated(b: ProgramBuilder, x: Var) -> Var:
    """Without the fraction."""
    return mul(b, unary(b, "sign", x), unary(b, "floor", unary(b, "abs", x)))


def _whole_quotient(b: ProgramBuilder, left: Var, right: Term, mode: str) -> Var:
    if mode == "floor":
        return binary(b, "floor_div", left, right)
    if datatype_of(left).is_float:
        return truncated(b, div(b, left, right))
    sizes = [abs(item) if isinstance(item, int | float) else unary(b, "abs", item) for item in (left, right)]
    signs = [
        math.copysign(1, item) if isinstance(item, int | float) else unary(b, "sign", item) for item in (left, right)
    ]
    return mul(b, binary(b, "floor_div", *sizes), mul(b, *signs))


def _divided_to_whole(b: ProgramBuilder, call: Call) -> Var:
    mode = call["rounding_mode"]
    return _divided(b, call) if mode is None else _whole_quotient(b, *_operands(b, call), mode)


def _remainder(mode: str) -> Lower:
    """What a division leaves."""

    def lower(b: ProgramBuilder, call: Call) -> Var:
        left, right = _operands(b, call)
        return sub(b, left, mul(b, _whole_quotient(b, left, right, mode), right))

    return lower


def exact_division(call: Call) -> str | None:
    """Integers, or a divisor that is a power of two: other quotients are rounded before they are made whole."""
    other = call["other"]
    if call.get("rounding_mode", "floor") is None:
        return None
    if call["self"].dtype_name in INTEGERS:
        return "other = 0" if other == 0 else None
    found = other if isinstance(other, int | float) else None
    if (
        found is not None
        and math.isfinite(found)
        and math.frexp(found)[0] in (0.5, -0.5)
        and 2**-8 <= abs(found) <= 2**8
    ):
        return None
    return f"other = {'a tensor' if found is None else found}: a power of two is taken"


def _clamp(b: ProgramBuilder, call: Call) -> Var:
    low, high = (call[name] for name in (("min", "max") if call.has("min") else ("min_val", "max_val")))
    return clamp(b, tensor(b, call), low, high)


def _clamp_between(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    for name, kind in (("min", "maximum"), ("max", "minimum")):
        if call[name] is not None:
            x = binary(b, kind, x, b.value(call[name]))
    return x


# -- comparisons and logic ---------------------------------------------------------------------------------------------


def _compared(kind: str) -> Lower:
    """With a number, or two tensors; MIL compares no booleans."""

    def lower(b: ProgramBuilder, call: Call) -> Var:
        left, right = _operands(b, call)
        if datatype_of(left) is DataType.BOOL:
            left = b.cast(left, DataType.INT32)
            right = float(right) if isinstance(right, int | float) else b.cast(right, DataType.INT32)
        return binary(b, kind, left, right)

    return lower


def _truth(b: ProgramBuilder, x: Var) -> Var:
    return b.cast(x, DataType.BOOL)


def _logical(kind: str) -> Lower:
    """Of any type: what is not 0 is true."""

    def lower(b: ProgramBuilder, call: Call) -> Var:
        return b.call(kind, x=_truth(b, tensor(b, call)), y=_truth(b, tensor(b, call, "other")))

    return lower


def _logical_not(b: ProgramBuilder, call: Call) -> Var:
    return unary(b, "logical_not", _truth(b, tensor(b, call)))


def _bitwise_not(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    # The bits of -1 - x are the others.
    return unary(b, "logical_not", x) if datatype_of(x) is DataType.BOOL else sub(b, -1, x)


# -- choices and conversions -------------------------------------------------------------------------------------------


def _where(b: ProgramBuilder, call: Call) -> Var:
    """MIL's builder looks only at the two for the size of the result: the condition may be larger."""
    left, right = tensor(b, call), tensor(b, call, "other")
    if broadcast(left.shape, right.shape) != sizes_of(call.result.shape):
        left = expanded(b, left, call.result.shape)
    return where(b, tensor(b, call, "condition"), left, right)


def _to_type(b: ProgramBuilder, call: Call) -> Var:
    return b.cast(tensor(b, call), b.result_type(call))


def wide_result(call: Call) -> str:
    """What conversions of integers mean on the device."""
    return "numbers beyond 32 bits are not PyTorch's" if narrowed(call) else ""


# -- the rows ----------------------------------------------------------------------------------------------------------

_FITTING: Final = (numbers_fit, no_nan)
#: Arguments that may be sizes which change from call to call.
_OTHER: Final = ("other",)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("add.Tensor add.Scalar", _sum("add"), ANY, *_FITTING, special_values=narrowed, sizes=_OTHER),
    row("sub.Tensor sub.Scalar", _sum("sub"), NUMBERS, *_FITTING, special_values=narrowed, sizes=_OTHER),
    row("rsub.Scalar", _sum("sub", reverse=True), NUMBERS, *_FITTING, special_values=narrowed),
    row(
        "mul.Tensor mul.Scalar",
        _binary("mul", "logical_and"),
        ANY,
        *_FITTING,
        narrow_product,
        special_values=narrowed,
        sizes=_OTHER,
    ),
    row("div.Tensor div.Scalar", _divided, ANY, *_FITTING, sizes=_OTHER),
    row(
        "div.Tensor_mode div.Scalar_mode",
        _divided_to_whole,
        NUMBERS,
        *_FITTING,
        exact_division,
    ),
    row("remainder.Tensor remainder.Scalar", _remainder("floor"), NUMBERS, *_FITTING, exact_division),
    row("fmod.Tensor fmod.Scalar", _remainder("trunc"), NUMBERS, *_FITTING, exact_division),
    row("maximum.default", _binary("maximum", "logical_or"), ANY),
    row("minimum.default", _binary("minimum", "logical_and"), ANY),
    row("clamp.default hardtanh.default", _clamp, NUMBERS, *_FITTING),
    row("clamp.Tensor", _clamp_between, NUMBERS),
    *(
        row(f"{name}.Tensor {name}.Scalar", _compared(kind), ANY, *_FITTING)
        for name, kind in {
            "eq": "equal",
            "ne": "not_equal",
            "lt": "less",
            "le": "less_equal",
            "gt": "greater",
            "ge": "greater_equal",
        }.items()
    ),
    row("logical_and.default", _logical("logical_and"), ANY),
    row("logical_or.default", _logical("logical_or"), ANY),
    row("logical_xor.default", _logical("logical_xor"), ANY),
    row("bitwise_and.Tensor", _logical("logical_and"), dtypes("bool")),
    row("bitwise_or.Tensor", _logical("logical_or"), dtypes("bool")),
    row("bitwise_xor.Tensor", _logical("logical_xor"), dtypes("bool")),
    row("logical_not.default", _logical_not, ANY),
    row("bitwise_not.default", _bitwise_not, dtypes(*INTEGERS, "bool")),
    row("where.self", _where, ANY),
    row("_to_copy.default", _to_type, ANY, special_values=wide_result),
    row("trunc.default", lambda b, call: truncated(b, tensor(b, call)), REAL),
)
