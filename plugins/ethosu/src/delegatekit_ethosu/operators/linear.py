"""Products with constant matrices."""

from __future__ import annotations

import math

import numpy as np
import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.support import Constraint, row
from delegatekit_toolkit.tosa.types import Array

from ..ir.filters import Filters, pointwise
from ..ir.program import ProgramBuilder
from ..ir.values import Result, Value
from .common import Rows, is_constant

# -- constraints -----------------------------------------------------------------------------------------------------


def constant_weight(weight_name: str, bias_name: str, *, outputs_first: bool = True) -> Constraint:
    """The constraint of weights: with `outputs_first` their first axis is that of the output channels, else the second.

    For a transposed convolution it is the second.
    """

    def check(call: Call) -> str | None:
        weight, bias = call[weight_name], call[bias_name]
        if weight.integers is None or not weight.integers.is_constant:
            return f"its weight {weight.name} is not constant integers"
        if weight.rank < 2:
            return f"its weight {weight.name} is a vector"
        found = weight.quantization
        if found is None or found.dtype is not torch.int8 or not found.is_symmetric or found.group is not None:
            return f"its weight {weight.name} is not int8 with zero points of 0, and a scale for each channel or one"
        transposed = call.get("transposed", False)
        if transposed and call["groups"] > 1 and found.axis is not None:
            return "a grouped transposed convolution has a scale for each channel of its weight"
        if found.axis not in (None, 0 if outputs_first and not transposed else 1):
            return f"its weight {weight.name} has scales along axis {found.axis}"
        return None if bias is None or is_constant(bias) else f"its bias {bias.name} is computed"

    weights = "The weight is constant, int8, symmetric, with a scale for each output channel or one"
    check.__doc__ = f"{weights}; the bias is constant."
    return check


def plain_product(call: Call) -> str | None:
    """alpha and beta are 1; the bias has a number for each column, or one."""
    alpha, beta = call["alpha"], call["beta"]
    if (alpha, beta) != (1, 1):
        return f"alpha and beta are {alpha} and {beta}: only 1 is taken"
    bias, columns = call["self"].shape, call.result.shape[-1]
    return None if math.prod(bias) in (1, columns) else f"a bias of {bias}"


# -- lowerings -------------------------------------------------------------------------------------------------------


def weight_of(b: ProgramBuilder, operand: Operand, channels: int) -> tuple[Array, Array]:
    """The integers of a weight and the scale of each of its `channels` output channels."""
    assert operand.integers is not None and operand.integers.constant is not None
    scale = b.quantization(operand).scale
    scales = scale.double().numpy() if isinstance(scale, torch.Tensor) else np.array([float(scale)])
    return operand.integers.constant.numpy(), np.broadcast_to(scales, (channels,))


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
