"""Operators that look elements up: embedding, index_select, gather, indexing by a tensor."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Tensor
from ..ir.types import DataType
from .common import FLOATS, INTEGERS, add, compared, converted, looked_up, mul, types, where
from .program import Lower, ProgramBuilder


def _embedding(b: ProgramBuilder, call: Call) -> Tensor:
    weight, indices = call["weight"], b.tensor(call["indices"])
    if not weight.is_constant:
        return looked_up(b, b.tensor(weight), 0, indices)
    rest = [call["padding_idx"], call["scale_grad_by_freq"], call["sparse"]]
    made = b.weight(weight)
    assert made is not None
    return b.call("aten.embedding.default", [made, indices, *rest], b.shape(call))


def _indices(b: ProgramBuilder, operand: Operand, size: object) -> Tensor:
    """Indices; constant ones are counted from the front, as GPUs do."""
    known = operand.constant
    if known is None or not isinstance(size, int) or not bool((known < 0).any()):
        return b.tensor(operand)
    return b.computed(b.constant(torch.where(known < 0, known + size, known)))


def _index_select(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    if not x.rank:  # its only element is selected, once: the runtime looks up along axes
        return b.view(looked_up(b, b.view(x, (1,)), 0, b.tensor(call["index"])), ())
    return looked_up(b, x, call["dim"] % x.rank, b.tensor(call["index"]))


def _indexed(call: Call) -> list[tuple[int, Operand]]:
    """The axes that are indexed, and by what; axes of size 1 that `_only_element` is taken of do not count."""
    return [
        (axis, item) for axis, item in enumerate(call["indices"]) if item is not None and not _only_element(call, axis)
    ]


def _only_element(call: Call, axis: int) -> bool:
    """True if an axis of size 1 is indexed beside its neighbor, whose index has the result's axes already."""
    indices = call["indices"]
    found = [at for at, item in enumerate(indices) if item is not None]
    if len(found) != 2 or found[1] - found[0] != 1 or axis not in found or shape_of(call["self"])[axis] != 1:
        return False
    this, other = indices[axis], indices[sum(found) - axis]
    # Of two axes of size 1 the second counts.
    first = axis == found[0] or shape_of(call["self"])[found[0]] != 1
    return first and this.is_constant and this.rank <= other.rank and all(size == 1 for size in shape_of(this))


def neighbors(call: Call) -> str | None:
    """Axes that follow each other are indexed, by integers."""
    found = _indexed(call)
    axes = [axis for axis, _ in found]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return f"axes {', '.join(map(str, axes))} are indexed at once, with others between them"
    stranger = next((item for _, item in found if item.dtype_name not in INTEGERS), None)
    return None if stranger is None else f"the index is {stranger.dtype_name}: integers are taken"


def _index(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    (axis, index), *more = _indexed(call)
    dropped = [at for at in range(len(call["indices"])) if _only_element(call, at)]
    if dropped:
        indices = _indices(b, index, x.shape[axis])
        x = b.call(
            "aten.squeeze_copy.dims", [x, tuple(dropped)], [s for at, s in enumerate(x.shape) if at not in dropped]
        )
        return looked_up(b, x, axis - sum(at < axis for at in dropped), indices)
    if not more:
        return looked_up(b, x, axis, _indices(b, index, x.shape[axis]))
    end = axis + 1 + len(more)
    place = _places(b, index, x, axis)
    for at, other in more:
        place = add(b, mul(b, place, _size(b, x, at)), _places(b, other, x, at))
    shape = (*x.shape[:axis], math.prod(x.shape[axis:end]), *x.shape[end:])
    flat = b.view(
        x,
        shape,
        lambda: [
            *b.sizes(x, range(axis)),
            b.product(b.sizes(x, range(axis, end))),
            *b.sizes(x, range(end, x.rank)),
        ],
    )
    return looked_up(b, flat, axis, place)


def _places(b: ProgramBuilder, operand: Operand, x: Tensor, axis: int) -> Tensor:
    """Indices along one of several axes, as 32 bits, counted from the front."""
    indices = converted(b, _indices(b, operand, x.shape[axis]), DataType.INT32)
    if operand.is_constant and isinstance(x.shape[axis], int):
        return indices
    return where(b, compared(b, "lt", indices, 0), add(b, indices, _size(b, x, axis)), indices)


def _size(b: ProgramBuilder, x: Tensor, axis: int) -> Tensor | int:
    size = x.shape[axis]
    return size if isinstance(size, int) else b.number(b.size(x, axis), DataType.INT32)


def _gather(b: ProgramBuilder, call: Call) -> Tensor:
    x, index = b.tensor(call["self"]), b.tensor(call["index"])
    axis = call["dim"] % max(x.rank, 1)
    return b.call("aten.gather.default", [x, axis, index, call["sparse_grad"]], b.shape(call))


def counted_from_front(call: Call) -> str:
    """Indices that GPUs treat otherwise."""
    found = _indexed(call)
    if len(found) > 1 or found[0][1].is_constant:
        return ""
    return "computed indices below 0 are only known to this runtime"


_TYPES: Final = types(*FLOATS, *INTEGERS, "bool")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("embedding.default", _embedding, types(*FLOATS, of=("weight",))),
    row("index_select.default", _index_select, _TYPES, passenger=True, runs=("aten.index.Tensor",)),
    row("index.Tensor", _index, _TYPES, neighbors, passenger=True, special_values=counted_from_front),
    row("gather.default", _gather, _TYPES, passenger=True),
)
