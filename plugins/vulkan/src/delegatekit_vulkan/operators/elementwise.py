"""Elementwise operators: arithmetic, comparisons, logic, choices, conversions. Functions are in functions.py."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.narrowing import narrow_product, narrowed, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Tensor
from ..ir.types import DataType
from .common import (
    FLOATS,
    INTEGERS,
    binary,
    both,
    broadcast,
    clamp,
    compared,
    converted,
    div,
    either,
    flat_rank,
    floating,
    four_axes,
    function,
    logical_not,
    mul,
    negative,
    sub,
    truth,
    types,
    where,
)
from .program import Lower, ProgramBuilder

# -- arithmetic --------------------------------------------------------------------------------------------------------


def _operands(b: ProgramBuilder, call: Call) -> tuple[Tensor, Tensor]:
    """Both operands; a number takes the tensor's type."""
    left = b.tensor(call["self"])
    return left, b.term(call, "other", left.datatype)


def _binary(operator: str, of_truths: str = "") -> Lower:
    """An operator, and the one that means the same for booleans."""

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        left, right = _operands(b, call)
        name = of_truths if left.datatype is DataType.BOOL else operator
        return b.call(name, [left, right], b.shape(call))

    return lower


def _sum(operator: str, *, reverse: bool = False) -> Lower:
    """With `alpha`, the factor of the second operand (reversed: of the first)."""

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        left, right = _operands(b, call)
        if left.datatype is DataType.BOOL:
            return either(b, left, right)
        if reverse:
            left, right = right, left
        return b.call(operator, [left, right, call["alpha"]], b.shape(call))

    return lower


def _divided(b: ProgramBuilder, call: Call) -> Tensor:
    left = floating(b, call)
    tensor = isinstance(call["other"], Operand)
    right = floating(b, call, "other") if tensor else b.term(call, "other", left.datatype)
    return b.call("aten.div.Tensor", [left, right], b.shape(call))


def floor(b: ProgramBuilder, x: Tensor) -> Tensor:
    """The next whole number below: the runtime has it as a division."""
    return x if not x.datatype.is_float else binary(b, "aten.div.Tensor_mode", x, 1, "floor")


def ceiling(b: ProgramBuilder, x: Tensor) -> Tensor:
    """The next whole number above."""
    return x if not x.datatype.is_float else negative(b, floor(b, negative(b, x)))


def truncated(b: ProgramBuilder, x: Tensor) -> Tensor:
    """Without the fraction."""
    if not x.datatype.is_float:
        return x
    return where(b, compared(b, "lt", x, 0), ceiling(b, x), floor(b, x))


def _divided_to_whole(b: ProgramBuilder, call: Call) -> Tensor:
    left, right = _operands(b, call)
    if call["rounding_mode"] == "trunc":
        return truncated(b, div(b, left, right))
    return b.call("aten.div.Tensor_mode", [left, right, "floor"], b.shape(call))


def rounds_as_runtime(call: Call) -> str | None:
    """rounding_mode is floor, or trunc for floating-point numbers."""
    mode = call["rounding_mode"]
    if mode == "floor" or (mode == "trunc" and call["self"].dtype_name in FLOATS):
        return None
    return f"rounding_mode = {mode}: the runtime divides integers with floor"


def _remainder(b: ProgramBuilder, call: Call) -> Tensor:
    """What a division leaves: with a divisor that is a power of two, or of integers, every step is exact."""
    left, right = _operands(b, call)
    if call.operator.startswith("aten.fmod"):
        quotient = truncated(b, div(b, left, right))
    else:
        quotient = b.call("aten.div.Tensor_mode", [left, right, "floor"], b.shape(call))
    return sub(b, left, mul(b, quotient, right))


def exact_division(call: Call) -> str | None:
    """Integers (remainder alone), or a divisor that is a power of two: other quotients are rounded."""
    other = call["other"]
    if call["self"].dtype_name in INTEGERS:
        return None if call.operator.startswith("aten.remainder") else "the runtime divides integers with floor"
    number = other if isinstance(other, int | float) else None
    if number is not None and math.isfinite(number) and abs(math.frexp(number)[0]) == 0.5 and abs(number) > 1e-30:
        return None
    return f"other = {number if number is not None else 'a tensor'}: a power of two is taken"


def least(b: ProgramBuilder, left: Tensor, right: Tensor) -> Tensor:
    """The lesser of two."""
    if left.datatype is DataType.BOOL:
        return both(b, left, right)
    return binary(b, "aten.minimum.default", left, right)


def greatest(b: ProgramBuilder, left: Tensor, right: Tensor) -> Tensor:
    """The greater of two: the runtime has the minimum only."""
    if left.datatype is DataType.BOOL:
        return either(b, left, right)
    return _reversed(b, least(b, _reversed(b, left), _reversed(b, right)))


def _reversed(b: ProgramBuilder, x: Tensor) -> Tensor:
    """The same numbers in the opposite order: of integers, the least of 32 bits has no negative, but -1 - x."""
    return negative(b, x) if x.datatype.is_float else sub(b, -1, x)


def _maximum(b: ProgramBuilder, call: Call) -> Tensor:
    return greatest(b, *_operands(b, call))


def _minimum(b: ProgramBuilder, call: Call) -> Tensor:
    return least(b, *_operands(b, call))


def _clamp_between(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    if call["min"] is not None:
        x = greatest(b, x, b.tensor(call["min"]))
    if call["max"] is not None:
        x = least(b, x, b.tensor(call["max"]))
    return x


# -- comparisons and logic ---------------------------------------------------------------------------------------------


def _compared(name: str) -> Lower:
    """With a number, or two tensors; the runtime compares no booleans, and has no `ne` of tensors."""

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        left, other = b.tensor(call["self"]), call["other"]
        if left.datatype is DataType.BOOL:
            left = converted(b, left, DataType.INT32)
        if isinstance(other, int | float):
            return compared(b, name, left, int(other) if isinstance(other, bool) else other)
        right = converted(b, b.term(call, "other", left.datatype), left.datatype)
        operator = f"aten.{'eq' if name == 'ne' else name}.Tensor"
        result = b.call(operator, [left, right], b.shape(call), DataType.BOOL)
        return logical_not(b, result) if name == "ne" else result

    return lower


def _logical(make: str) -> Lower:
    """Of any type: what is not 0 is true."""

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        left, right = truth(b, b.tensor(call["self"])), truth(b, b.tensor(call["other"]))
        if make == "xor":
            return both(b, either(b, left, right), logical_not(b, both(b, left, right)))
        return (both if make == "and" else either)(b, left, right)

    return lower


def _logical_not(b: ProgramBuilder, call: Call) -> Tensor:
    return logical_not(b, truth(b, b.tensor(call["self"])))


def _bitwise_not(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    # The bits of -1 - x are the others.
    return b.call("aten.bitwise_not.default", [x], x.shape) if x.datatype is DataType.BOOL else sub(b, -1, x)


def _is_nan(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    return logical_not(b, b.call("aten.eq.Tensor", [x, x], x.shape, DataType.BOOL))


def _is_infinite(b: ProgramBuilder, call: Call) -> Tensor:
    return compared(b, "eq", function(b, "aten.abs.default", b.tensor(call["self"])), math.inf)


# -- choices and conversions -------------------------------------------------------------------------------------------


def _where(b: ProgramBuilder, call: Call) -> Tensor:
    left, right = b.tensor(call["self"]), b.tensor(call["other"])
    made = where(b, b.tensor(call["condition"]), left, right)
    assert broadcast(made.shape) == b.shape(call)
    return made


def _to_type(b: ProgramBuilder, call: Call) -> Tensor:
    return converted(b, b.tensor(call["self"]), b.result_type(call))


def wide_result(call: Call) -> str:
    """What float to int64 means on the device."""
    return "numbers beyond 32 bits become the largest of 32" if narrowed(call) else ""


def _sign(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    if not x.datatype.is_float:
        return clamp(b, x, -1, 1)
    above = where(b, compared(b, "gt", x, 0), 1, b.scalar(0, x.datatype))
    return where(b, compared(b, "lt", x, 0), -1, above)


def _rounded(name: str) -> Lower:
    makers = {"floor": floor, "ceil": ceiling, "trunc": truncated}

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        return makers[name](b, b.tensor(call["self"]))

    return lower


# -- the rows ----------------------------------------------------------------------------------------------------------

_NUMBERS: Final = (types(*FLOATS, *INTEGERS), numbers_fit)
_ANY: Final = (types(*FLOATS, *INTEGERS, "bool"), numbers_fit)
#: Of the arguments of arithmetic, a number beside a tensor may change from call to call.
_OTHER: Final = ("other",)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("add.Tensor add.Scalar", _sum("aten.add.Tensor"), *_ANY, special_values=narrowed, takes_sizes=_OTHER),
    row("sub.Tensor sub.Scalar", _sum("aten.sub.Tensor"), *_NUMBERS, special_values=narrowed, takes_sizes=_OTHER),
    row(
        "rsub.Scalar",
        _sum("aten.sub.Tensor", reverse=True),
        *_NUMBERS,
        special_values=narrowed,
        takes_sizes=_OTHER,
    ),
    row(
        "mul.Tensor mul.Scalar",
        _binary("aten.mul.Tensor", "aten.logical_and.default"),
        *_ANY,
        narrow_product,
        special_values=narrowed,
        takes_sizes=_OTHER,
    ),
    row("div.Tensor div.Scalar", _divided, *_ANY, takes_sizes=_OTHER),
    row(
        "div.Tensor_mode div.Scalar_mode",
        _divided_to_whole,
        *_NUMBERS,
        rounds_as_runtime,
        takes_sizes=_OTHER,
    ),
    row("remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar", _remainder, *_NUMBERS, exact_division),
    row("maximum.default", _maximum, *_ANY, flat_rank),
    row("minimum.default", _minimum, *_ANY),
    row("clamp.Tensor", _clamp_between, *_NUMBERS, flat_rank),
    row("floor.default", _rounded("floor"), *_NUMBERS),
    row("ceil.default", _rounded("ceil"), *_NUMBERS, flat_rank),
    row("trunc.default", _rounded("trunc"), *_NUMBERS, four_axes),
    row("sign.default", _sign, *_NUMBERS, four_axes),
    *(
        row(f"{name}.Tensor {name}.Scalar", _compared(name), *_ANY, takes_sizes=_OTHER)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    ),
    row("logical_and.default", _logical("and"), *_ANY),
    row("logical_or.default", _logical("or"), *_ANY),
    row("logical_xor.default", _logical("xor"), *_ANY),
    row("bitwise_and.Tensor", _logical("and"), types("bool")),
    row("bitwise_or.Tensor", _logical("or"), types("bool")),
    row("bitwise_xor.Tensor", _logical("xor"), types("bool")),
    row("logical_not.default", _logical_not, *_ANY),
    row("bitwise_not.default", _bitwise_not, types(*INTEGERS, "bool")),
    row("isnan.default", _is_nan, types(*FLOATS, of=("self",))),
    row("isinf.default", _is_infinite, types(*FLOATS, of=("self",)), flat_rank),
    row("where.self", _where, *_ANY, four_axes),
    row("_to_copy.default", _to_type, *_ANY, special_values=wide_result),
)
