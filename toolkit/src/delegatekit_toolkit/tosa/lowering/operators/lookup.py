"""Rows of a table, or of a tensor, selected by indices. For devices that are not narrow."""

from __future__ import annotations

import math

from delegatekit_api import Call, Operand
from delegatekit_toolkit.support import row
from delegatekit_toolkit.tosa import Gather, Tensor

from ..device import Device
from ..limits import LOOK_UPS
from ..program import ProgramBuilder
from ..values import Result, Value
from .common import Rows, activation_obstacle, narrow_indices, needs


def constant_table(call: Call) -> str | None:
    """The table is constant, int8 or int16 with one scale."""
    weight: Operand = call["weight"]
    if weight.integers is None or not weight.integers.is_constant:
        return f"its table {weight.name} is not constant integers"
    reason = activation_obstacle(weight.quantization)
    return None if reason is None else f"its table {weight.name} is {reason}"


def _embedded(b: ProgramBuilder, call: Call, result: Result) -> Value:
    """The table is constant, and is rescaled to the result immediately."""
    weight = call["weight"]
    table = b.requantized(b.integers(weight).tensor, b.scale(weight), Result(result.scale))
    indices = b.contiguous(b.integers(call["indices"]))
    rows = _gathered(b, table, b.reshaped(indices, (math.prod(indices.shape),)))
    return Value.dense(b.clamped(b.reshaped(rows, (*indices.shape, table.shape[1])), result))


def _selected(b: ProgramBuilder, call: Call, result: Result) -> Value:
    operand = call["self"]
    value, indices = b.integers(operand), b.contiguous(b.integers(call["index"]))
    axis = call["dim"] % len(value.order)
    order = (axis, *(other for other in value.order if other != axis))
    tensor = b.stored(value, order)
    flat = b.reshaped(tensor, (tensor.shape[0], math.prod(tensor.shape[1:])))
    rows = _gathered(b, flat, b.reshaped(indices, (math.prod(indices.shape),)))
    made = b.reshaped(rows, (rows.shape[0], *tensor.shape[1:]))
    return Value(b.requantized(made, b.scale(operand), result), order)


def _gathered(b: ProgramBuilder, table: Tensor, indices: Tensor) -> Tensor:
    """Rows of (K, C) by indices (W): (W, C)."""
    rows, (size,) = b.reshaped(table, (1, *table.shape)), indices.shape
    shape = (1, size, table.shape[1])
    made = b.emit(Gather(), (rows, b.reshaped(indices, (1, size))), shape, table.dtype, "rows")
    return b.reshaped(made, shape[1:])


def rows(device: Device) -> Rows:
    """The rows for a device."""
    lacks = needs(device, LOOK_UPS)
    return (
        row(
            "embedding.default",
            _embedded,
            *(lacks or (narrow_indices("indices"), constant_table)),
            constants=("weight", "indices"),
        ),
        row("index_select.default", _selected, *(lacks or (narrow_indices("index"),)), constants=("index",)),
    )
