"""Elementwise operators: arithmetic, comparisons, logic, choices, conversions. Functions are in functions.py."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.composed.number import between
from delegatekit_toolkit.composed.rows import elementwise_rows
from delegatekit_toolkit.constraints import dtypes, no_nan
from delegatekit_toolkit.flatbuffer import Table
from delegatekit_toolkit.narrowing import fits_elements
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Value
from .common import ANY, DIALECT, INTEGERS, NUMBERS, REAL, binary, composed, tensor, unary


def _clamp(b: GraphBuilder, call: Call) -> Value:
    low, high = (call[name] for name in (("min", "max") if call.has("min") else ("min_val", "max_val")))
    return between(DIALECT.number(b, tensor(b, call)), low, high).value


def _to_type(b: GraphBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return b.cast(x, call.result.dtype)


def _remainder(b: GraphBuilder, call: Call) -> Value:
    return binary(b, schema.RemainderNode, tensor(b, call), _other(b, call))


def _other(b: GraphBuilder, call: Call) -> Value:
    other = call["other"]
    return b.number(other, call.result.dtype) if isinstance(other, int | float) else b.value(other)


def _bits(kind: type[Table], of_booleans: type[Table]) -> Lower:
    def lower(b: GraphBuilder, call: Call) -> Value:
        x = tensor(b, call)
        return binary(b, of_booleans if x.dtype is torch.bool else kind, x, _other(b, call))

    return lower


def _not(b: GraphBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return unary(b, schema.LogicalNotNode if x.dtype is torch.bool else schema.BitwiseInvertNode, x)


_WHOLE: Final = dtypes(*INTEGERS, "bool")
#: Replaced by MLX's own, which take more types or are exact for more numbers.
_OWN: Final = ("remainder", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")

ROWS: Final[tuple[Row[Lower], ...]] = (
    *(
        entry
        for entry in elementwise_rows(composed, ANY, NUMBERS, narrow=False)
        if entry.operators[0].split(".")[1] not in _OWN
    ),
    row("remainder.Tensor remainder.Scalar", _remainder, NUMBERS, fits_elements, no_nan()),
    row("bitwise_and.Tensor", _bits(schema.BitwiseAndNode, schema.LogicalAndNode), _WHOLE),
    row("bitwise_or.Tensor", _bits(schema.BitwiseOrNode, schema.LogicalOrNode), _WHOLE),
    row("bitwise_xor.Tensor", _bits(schema.BitwiseXorNode, schema.NotEqualNode), _WHOLE),
    row("bitwise_not.default", _not, _WHOLE),
    row("clamp.default hardtanh.default", _clamp, NUMBERS, fits_elements, no_nan()),
    row("_to_copy.default", _to_type, ANY),
    row(
        "logaddexp.default",
        lambda b, call: binary(b, schema.LogAddExpNode, tensor(b, call), _other(b, call)),
        REAL,
        keep=True,
    ),
)
