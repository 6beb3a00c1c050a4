"""Operators that look elements up: embedding, index_select, gather, indexing by tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, axis_of_indices, indices_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from ..ir.sizes import Size, is_fixed
from .common import (
    FLOATS,
    MOVED,
    add,
    from_front,
    inside,
    integer_indices,
    mul,
    places_of,
    tensor,
    transposed,
)


def _looked_up(b: ModelBuilder, x: Value, axis: int, indices: Value) -> Value:
    """Slices of a value along an axis."""
    made = b.op("gather", x, indices, b.scalar(axis))
    return b.declare(made, [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def _embedding(b: ModelBuilder, call: Call) -> Value:
    return _looked_up(b, tensor(b, call, "weight"), 0, tensor(b, call, "indices"))


def _index_select(b: ModelBuilder, call: Call) -> Value:
    x = tensor(b, call)
    axis = axis_of(call["dim"], x.rank)
    return _looked_up(b, x, axis, b.reshape(tensor(b, call, "index"), (call.result.shape[axis],)))


def _index(b: ModelBuilder, call: Call) -> Value:
    x, found = tensor(b, call), indices_of(call)
    if len(found) == 1:
        ((axis, index),) = found.items()
        return _looked_up(b, x, axis, from_front(b, index, x.shape[axis]))
    places, order, shape = places_of(b, x, found)
    made = b.op("gather_nd", transposed(b, x, order), places)
    made = b.declare(made, [*shape, *(x.shape[axis] for axis in order[len(found) :])])
    first, axes = axis_of_indices(found), len(shape)
    return transposed(b, made, [*range(axes, axes + first), *range(axes), *range(axes + first, made.rank)])


def _gather(b: ModelBuilder, call: Call) -> Value:
    x, index = tensor(b, call), tensor(b, call, "index")
    axis = axis_of(call["dim"], x.rank)
    if _whole(call):
        index = inside(b, index, call["index"], x.shape[axis])
        return b.declare(b.op("gather_elements", x, index, axis=axis), index.shape)
    # A part of x would be a Slice, which OpenVINO drops before GatherElements: look up among all elements.
    flat = b.reshape(x, (-1,))
    return _looked_up(b, flat, 0, _flat_places(b, index, x.shape, axis))


def _whole(call: Call) -> bool:
    """True if the index is as large as the tensor on all other axes."""
    axis = axis_of(call["dim"], call["self"].rank)
    pairs = enumerate(zip(call["self"].shape, call["index"].shape, strict=True))
    return all(at == axis or (is_fixed(size) and size == other) for at, (size, other) in pairs)


def _flat_places(b: ModelBuilder, index: Value, shape: Sequence[Size], axis: int) -> Value:
    """The positions, among all elements, of an index into a part of a tensor."""
    sizes = [int(size) for size in shape if size is not None]
    steps = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
    counts = [int(size) for size in index.shape if size is not None]
    base = torch.zeros(counts, dtype=torch.int64)
    for at, size in enumerate(counts):
        if at != axis:
            base += (torch.arange(size) * steps[at]).reshape([-1 if other == at else 1 for other in range(len(counts))])
    return add(b, mul(b, b.cast(index, torch.int64), steps[axis]), b.constant(base))


def fixed_part(call: Call) -> str | None:
    """Sizes are fixed where the index is smaller than the tensor."""
    if call["self"].rank != call["index"].rank:
        return "an index with other axes"
    if _whole(call) or not (call["self"].is_dynamic or call["index"].is_dynamic):
        return None
    return "sizes of tensor or index change from call to call"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("embedding.default", _embedding, types_of("weight", *FLOATS)),
    row("index_select.default", _index_select, MOVED, has_axes("self"), passenger=True),
    row("index.Tensor", _index, MOVED, integer_indices, passenger=True),
    row("gather.default", _gather, MOVED, has_axes("self"), has_axes("index"), fixed_part, passenger=True),
)
