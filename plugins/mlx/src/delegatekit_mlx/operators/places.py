"""Indices, and the places along an axis that they name."""

from __future__ import annotations

import math
from typing import Any

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import indices_of
from delegatekit_toolkit.expressions import broadcast

from ..blob import schema
from ..ir.builder import GraphBuilder, Value
from ..ir.sizes import size_of
from .common import add, binary, expanded, mul, transposed, where


def integer_indices(call: Call) -> str | None:
    """The indices are integers."""
    return "an index is a mask" if any(item.dtype_name == "bool" for item in indices_of(call).values()) else None


def same_axes(call: Call) -> str | None:
    """The index has the tensor's axes."""
    return None if call["self"].rank == call["index"].rank else "an index with other axes"


def from_front(b: GraphBuilder, operand: Operand, size: Any) -> Value:
    """Indices counted from the front."""
    known, last = operand.constant, size_of(size)
    if known is not None and isinstance(last, int):
        return b.constant(torch.where(known < 0, known + last, known).to(torch.int64))
    indices = b.cast(b.value(operand), torch.int64)
    more = b.full((), last, torch.int64)
    below = binary(b, schema.LessNode, indices, 0, torch.bool)
    return where(b, below, add(b, indices, more), indices)


def rows_of(b: GraphBuilder, call: Call, x: Value) -> tuple[Value, Value]:
    """A tensor with its indexed axes as one in front, and the places along it that the indices name."""
    found = indices_of(call)
    rest = [axis for axis in range(x.rank) if axis not in found]
    sizes = [x.shape[axis] for axis in found]
    rows = b.reshape(transposed(b, x, [*found, *rest]), (math.prod(sizes), *(x.shape[axis] for axis in rest)))
    values = [from_front(b, index, x.shape[axis]) for axis, index in found.items()]
    shape = broadcast(*(value.shape for value in values))
    places = values[0]
    for value, size in zip(values[1:], sizes[1:], strict=True):
        places = add(b, mul(b, places, b.full((), size, torch.int64)), value)
    return rows, expanded(b, places, shape)
