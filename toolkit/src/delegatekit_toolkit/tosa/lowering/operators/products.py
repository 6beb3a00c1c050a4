"""Products of two computed matrices."""

from __future__ import annotations

import math

from delegatekit_api import Call, Operand
from delegatekit_toolkit.support import row
from delegatekit_toolkit.tosa import DType, Matmul

from ..device import Device
from ..limits import WIDE_PRODUCTS
from ..program import ProgramBuilder
from ..values import Result, Value
from .common import Rows, narrow


def equal_stacks(call: Call) -> str | None:
    """Matrices, or stacks of as many."""
    left, right = call.arguments.values()
    if min(left.rank, right.rank) < 2:
        return f"a product of shapes {left.shape} and {right.shape}"
    if left.shape[:-2] != right.shape[:-2]:
        return f"stacks {left.shape[:-2]} and {right.shape[:-2]} are not the same"
    return None


def _matmul(b: ProgramBuilder, call: Call, result: Result) -> Value:
    """(..., M, K) @ (..., K, N), with equal stacks."""
    factors: tuple[Operand, Operand] = tuple(call.arguments.values())
    scales = [b.scale(item) for item in factors]
    shapes = [item.shape for item in factors]
    stack = shapes[0][:-2]
    left, right = (
        b.reshaped(b.contiguous(b.integers(item)), (math.prod(stack), *shape[-2:]))
        for item, shape in zip(factors, shapes, strict=True)
    )
    zeros = [b.number(scale.zero_point, scale.dtype) for scale in scales]
    shape = (left.shape[0], left.shape[1], right.shape[2])
    kind = DType.INT32 if scales[0].dtype == DType.INT8 else DType.INT48
    sums = b.emit(Matmul(), (left, right, *zeros), shape, kind, "sums")
    made = b.stored_as(sums, [scales[0].scale * scales[1].scale], result)
    return Value.dense(b.reshaped(made, (*stack, *shape[1:])))


def rows(device: Device) -> Rows:
    """The rows for a device."""
    constraints = (equal_stacks, *narrow(device, WIDE_PRODUCTS))
    return (
        row("mm.default bmm.default", _matmul, *constraints),
        row("matmul.default", _matmul, *constraints, keep=True),
    )
