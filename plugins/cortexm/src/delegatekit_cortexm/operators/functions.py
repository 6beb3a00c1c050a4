"""Functions of single values: any number of these on one quantized tensor are one table of 256 integers."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import map_arg

from delegatekit_api import Call
from delegatekit_api.operators import RuntimeTensor
from delegatekit_toolkit.support import row
from delegatekit_toolkit.units import Unit

from ..ir.numbers import Scale
from ..ir.program import ProgramBuilder, stored
from .common import Rows


def single_values(call: Call) -> str | None:
    """A function of one quantized tensor, number by number; several of these in a row are one table."""
    return "its operands are not one quantized tensor and numbers"


def refused(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    """No such call is lowered by itself: see `lower_function`."""
    raise NotImplementedError(call.operator)


def lower_function(b: ProgramBuilder, unit: Unit, result: Scale) -> RuntimeTensor:
    """The table of a unit: PyTorch's results for the numbers of all 256 integers."""
    known: dict[Any, torch.Tensor] = {}
    tensor = None
    for operand in unit.operands:
        assert operand.integers is not None
        own, data = b.scale(operand), operand.integers.constant
        entries = torch.arange(-128, 128) if data is None else data.flatten()
        known[operand.node] = (entries.float() - own.zero_point) * own.scale
        if data is None:
            tensor = b.integers(operand)
    assert tensor is not None
    for call in unit.inner:
        for item in call.operands:
            if item.constant is not None:
                known.setdefault(item.node, item.constant.detach().flatten())
        arguments, keywords = map_arg((call.node.args, call.node.kwargs), known.__getitem__)
        target: Any = call.node.target
        with torch.no_grad():
            known[call.node] = target(*arguments, **keywords)
    return b.table(tensor, stored(known[unit.inner[-1].node], result))


ROWS: Rows = (
    row("relu.default", refused, single_values, clamp=True),
    row("hardtanh.default clamp.default", refused, single_values, keep=True, clamp=True),
    row(
        "sigmoid.default tanh.default exp.default expm1.default erf.default atan.default asinh.default abs.default "
        "neg.default log.default log1p.default log2.default log10.default sqrt.default rsqrt.default "
        "reciprocal.default sin.default cos.default tan.default asin.default acos.default sinh.default cosh.default "
        "acosh.default atanh.default sign.default floor.default ceil.default round.default trunc.default "
        "add.Scalar sub.Scalar mul.Scalar div.Scalar rsub.Scalar pow.Tensor_Scalar",
        refused,
        single_values,
    ),
    row(
        "silu.default gelu.default mish.default softplus.default log_sigmoid.default elu.default celu.default "
        "hardsigmoid.default hardswish.default leaky_relu.default threshold.default hardshrink.default "
        "softshrink.default square.default",
        refused,
        single_values,
        keep=True,
    ),
)
