"""Products with constant matrices."""

from __future__ import annotations

import math

from delegatekit_api import Call, Operand
from delegatekit_toolkit.support import row

from ..filters import Filters, pointwise
from ..program import ProgramBuilder
from ..values import Result, Value
from .common import Rows, constant_weight, weight_of

# -- constraints -----------------------------------------------------------------------------------------------------


def plain_product(call: Call) -> str | None:
    """alpha and beta are 1; the bias has a number for each column, or one."""
    alpha, beta = call["alpha"], call["beta"]
    if (alpha, beta) != (1, 1):
        return f"alpha and beta are {alpha} and {beta}: only 1 is taken"
    bias, columns = call["self"].shape, call.result.shape[-1]
    return None if math.prod(bias) in (1, columns) else f"a bias of {bias}"


# -- lowerings -------------------------------------------------------------------------------------------------------


def _linear(b: ProgramBuilder, call: Call, result: Result) -> Value:
    weight = call["weight"]
    data, scales = weight_of(b, weight, weight.shape[0])
    return _rows(b, call["input"], Filters(data, scales, b.numbers(call["bias"])), result)


def _addmm(b: ProgramBuilder, call: Call, result: Result) -> Value:
    """The same with a weight that is stored transposed, (I, O)."""
    weight = call["mat2"]
    data, scales = weight_of(b, weight, weight.shape[1])
    return _rows(b, call["mat1"], Filters(data.T, scales, b.numbers(call["self"])), result)


def _rows(b: ProgramBuilder, operand: Operand, filters: Filters, result: Result) -> Value:
    """(..., I) @ weight (O, I)^T + bias (O): a convolution of one pixel, with the rows along its width."""
    x, before = b.integers(operand), b.scale(operand)
    *outer, inputs = x.shape
    flat = b.reshaped(b.contiguous(x), (1, 1, math.prod(outer), inputs))
    sums, steps = pointwise(b, flat, before, filters)
    made = b.stored_as(sums, steps, result)
    return Value.dense(b.reshaped(made, (*outer, len(filters.scales))))


ROWS: Rows = (
    row("linear.default", _linear, constant_weight("weight", "bias"), keep=True, constants=("weight", "bias")),
    row(
        "addmm.default",
        _addmm,
        constant_weight("mat2", "self", outputs_first=False),
        plain_product,
        keep=True,
        constants=("mat2", "self"),
    ),
)
