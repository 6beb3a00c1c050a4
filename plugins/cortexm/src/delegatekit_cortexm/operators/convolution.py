"""Convolutions with constant weights."""

from __future__ import annotations

from collections.abc import Sequence

from delegatekit_api import Call
from delegatekit_api.operators import RuntimeTensor
from delegatekit_toolkit.support import row

from ..ir.images import Filters, convolved, image_of, of_rank
from ..ir.numbers import Scale
from ..ir.program import ProgramBuilder
from .common import Rows, bias_of, constant_weight, scales_of, weight_of


def plane(call: Call) -> str | None:
    """Of images (N, C, H, W) or rows (N, C, L)."""
    rank = call["input"].rank
    return None if rank in (3, 4) else f"its input has {rank} axes"


def plain_transposed(call: Call) -> str | None:
    """A transposed one has one group, no dilation and no output padding."""
    if not call["transposed"]:
        return None
    if call["groups"] > 1:
        return f"a transposed convolution of {call['groups']} groups"
    for name, plain in (("dilation", 1), ("output_padding", 0)):
        if any(item != plain for item in call[name]):
            return f"a transposed convolution with {name.replace('_', ' ')} {tuple(call[name])}"
    return None


def _pair(values: Sequence[int], one_row: int) -> tuple[int, int]:
    """A setting along height and width."""
    return (values[0], values[1]) if len(values) == 2 else (one_row, values[0])


def _convolution(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    operand, weight, shape = call["input"], call["weight"], tuple(call.result.shape)
    data = weight_of(weight)
    outputs = shape[1]
    if data.dim() == 3:
        data = data.unsqueeze(2)
    scales = scales_of(weight, outputs)
    filters = Filters(
        data,
        scales,
        bias_of(b, call["bias"], [b.scale(operand).scale * scale for scale in scales]),
        stride=_pair(call["stride"], 1),
        padding=_pair(call["padding"], 0),
        dilation=_pair(call["dilation"], 1),
        groups=call["groups"],
        transposed=call["transposed"],
    )
    x = image_of(b, b.integers(operand))
    whole = shape if len(shape) == 4 else (*shape[:2], 1, shape[2])
    return of_rank(b, convolved(b, x, b.scale(operand), filters, whole, result), shape)


ROWS: Rows = (
    row(
        "convolution.default",
        _convolution,
        plane,
        plain_transposed,
        constant_weight("weight", "bias"),
        constants=("weight", "bias"),
    ),
)
