"""Elementwise operators: arithmetic, comparisons, logic, choices, conversions. Functions are in functions.py."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import bounds_of
from delegatekit_toolkit.composed import arithmetic
from delegatekit_toolkit.composed.arithmetic import exact_division
from delegatekit_toolkit.composed.number import between
from delegatekit_toolkit.composed.rows import elementwise_rows
from delegatekit_toolkit.constraints import dtypes, no_nan
from delegatekit_toolkit.narrowing import fits_elements
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Value
from .common import ANY, DIALECT, INTEGERS, NUMBERS, REAL, binary, composed, floating, tensor, unary, where


def _clamp(b: GraphBuilder, call: Call) -> Value:
    made: Value = between(DIALECT.number(b, floating(b, call)), *bounds_of(call)).value
    return made


def _to_type(b: GraphBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return b.cast(x, call.result.dtype)


def _remainder(b: GraphBuilder, call: Call) -> Value:
    return binary(b, schema.RemainderNode, tensor(b, call), _other(b, call))


def _fmod(b: GraphBuilder, call: Call) -> Value:
    return _rest(b, tensor(b, call), _other(b, call))


def _rest(b: GraphBuilder, x: Value, y: Value) -> Value:
    """The rest of a division towards 0. Without signs it is MLX's own; integers lose it for those of both signs."""
    if x.is_float:
        size = binary(b, schema.RemainderNode, unary(b, schema.AbsNode, x), unary(b, schema.AbsNode, y))
        return binary(b, schema.MultiplyNode, size, unary(b, schema.SignNode, x))
    rest = binary(b, schema.RemainderNode, x, y)
    return where(b, _turned(b, rest, x, y), binary(b, schema.SubtractNode, rest, y), rest)


def _turned(b: GraphBuilder, rest: Value, x: Value, y: Value) -> Value:
    """True where something is left of a division of numbers of different signs."""
    below, other = (binary(b, schema.LessNode, item, 0, torch.bool) for item in (x, y))
    is_left = binary(b, schema.NotEqualNode, rest, 0, torch.bool)
    return binary(b, schema.LogicalAndNode, is_left, binary(b, schema.NotEqualNode, below, other))


def _quotient(b: GraphBuilder, call: Call) -> Value:
    """A quotient as it is, rounded down or towards 0."""
    dtype, mode = call.result.dtype, call["rounding_mode"]
    x, y = b.cast(tensor(b, call), dtype), b.cast(_other(b, call), dtype)
    if mode is None:
        return binary(b, schema.DivideNode, x, y)
    if not x.is_float:
        made = binary(b, schema.FloorDivideNode, x, y)
        if mode == "floor":
            return made
        rest = _turned(b, binary(b, schema.RemainderNode, x, y), x, y)
        return binary(b, schema.AddNode, made, b.cast(rest, x.dtype))
    if mode == "trunc":
        return unary(b, schema.TruncNode, binary(b, schema.DivideNode, x, y))
    return _rounded_down(b, x, y)


def _rounded_down(b: GraphBuilder, x: Value, y: Value) -> Value:
    """As PyTorch: the quotient of what is left without the rest, which is an integer but for its rounding."""
    rest = _rest(b, x, y)
    whole = binary(b, schema.DivideNode, binary(b, schema.SubtractNode, x, rest), y)
    whole = where(b, _turned(b, rest, rest, y), binary(b, schema.SubtractNode, whole, 1.0), whole)
    below = unary(b, schema.FloorNode, whole)
    is_near = binary(b, schema.GreaterNode, binary(b, schema.SubtractNode, whole, below), 0.5, torch.bool)
    made = where(b, is_near, binary(b, schema.AddNode, below, 1.0), below)
    by_zero = binary(b, schema.EqualNode, y, 0.0, torch.bool)
    return where(b, by_zero, binary(b, schema.DivideNode, x, y), made)


def whole_quotient(call: Call) -> str | None:
    """A quotient that is rounded towards 0 is one of integers, or by a known power of two: PyTorch rounds it twice."""
    return _EXACT(call) if call["rounding_mode"] == "trunc" else None


_EXACT: Final = exact_division()


def _other(b: GraphBuilder, call: Call) -> Value:
    other = call["other"]
    return b.number(other, call.result.dtype) if isinstance(other, int | float) else b.value(other)


_WHOLE: Final = dtypes(*INTEGERS, "bool")
#: Replaced by MLX's own, which take more types or are exact for more numbers.
_OWN: Final = ("remainder", "fmod", "bitwise_not")

ROWS: Final[tuple[Row[Lower], ...]] = (
    *(
        entry
        for entry in elementwise_rows(composed, ANY, NUMBERS, narrow=False, bits=_WHOLE)
        if entry.operators[0].split(".")[1] not in _OWN and "Tensor_mode" not in entry.operators[0]
    ),
    row("remainder.Tensor remainder.Scalar", _remainder, NUMBERS, fits_elements, no_nan()),
    row("fmod.Tensor fmod.Scalar", _fmod, NUMBERS, fits_elements, no_nan()),
    row("div.Tensor_mode div.Scalar_mode", _quotient, NUMBERS, fits_elements, no_nan(), whole_quotient),
    row("bitwise_not.default", composed(arithmetic.bitwise_not), _WHOLE),
    row("clamp.default hardtanh.default", _clamp, NUMBERS, fits_elements, no_nan()),
    row("_to_copy.default", _to_type, ANY),
    row(
        "logaddexp.default",
        lambda b, call: binary(b, schema.LogAddExpNode, tensor(b, call), _other(b, call)),
        REAL,
        keep=True,
    ),
)
