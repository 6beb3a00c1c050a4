"""Operators that look elements up: embedding, index_select, gather, indexing by a tensor."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.sizes import dynamic_count, shape_of
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Tensor
from ..ir.types import DataType
from .common import FLOATS, INTEGERS, compared, converted, flattened, types
from .program import Lower, ProgramBuilder


def _embedding(b: ProgramBuilder, call: Call) -> Tensor:
    weight, indices = call["weight"], b.tensor(call["indices"])
    if not weight.is_constant:
        return looked_up(b, b.tensor(weight), 0, indices)
    rest = [call["padding_idx"], call["scale_grad_by_freq"], call["sparse"]]
    made = b.weight(weight)
    assert made is not None
    return b.call("aten.embedding.default", [made, indices, *rest], b.shape(call))


def looked_up(b: ProgramBuilder, x: Tensor, axis: int, indices: Tensor) -> Tensor:
    """Slices of a tensor along an axis, at indices of any shape: the runtime takes a list of them."""
    flat = b.view(indices, (flattened(indices.shape),))
    shape = (*x.shape[:axis], *flat.shape, *x.shape[axis + 1 :])
    is_bool = x.datatype is DataType.BOOL
    if is_bool:
        x = converted(b, x, DataType.INT32)
    found = b.call("aten.index.Tensor", [x, (*(None,) * axis, flat)], shape)
    found = compared(b, "ne", found, 0) if is_bool else found
    return b.view(found, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _indices(b: ProgramBuilder, operand: Operand, size: object) -> Tensor:
    """Indices; constant ones are counted from the front, as GPUs do."""
    known = operand.constant
    if known is None or not isinstance(size, int) or not bool((known < 0).any()):
        return b.tensor(operand)
    return b.computed(b.constant(torch.where(known < 0, known + size, known)))


def _index_select(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    axis = call["dim"] % max(x.rank, 1)
    return looked_up(b, x, axis, b.tensor(call["index"]))


def _the_index(call: Call) -> tuple[int, Operand]:
    """The axis that is indexed, and by what; axes of size 1 that `_only_element` is taken of do not count."""
    ((axis, operand),) = [
        (axis, item) for axis, item in enumerate(call["indices"]) if item is not None and not _only_element(call, axis)
    ]
    return axis, operand


def _only_element(call: Call, axis: int) -> bool:
    """Whether an axis of size 1 is indexed beside its neighbor, whose index has the result's axes already."""
    indices = call["indices"]
    found = [at for at, item in enumerate(indices) if item is not None]
    if len(found) != 2 or found[1] - found[0] != 1 or axis not in found or shape_of(call["self"])[axis] != 1:
        return False
    this, other = indices[axis], indices[sum(found) - axis]
    # Of two axes of size 1 the second counts.
    first = axis == found[0] or shape_of(call["self"])[found[0]] != 1
    return first and this.is_constant and this.rank <= other.rank and all(size == 1 for size in shape_of(this))


def one_index(call: Call) -> str | None:
    """One axis is indexed, by integers."""
    found = [item for at, item in enumerate(call["indices"]) if item is not None and not _only_element(call, at)]
    if len(found) != 1:
        return f"{len(found)} axes are indexed at once: one is taken"
    if found[0].dtype_name not in INTEGERS:
        return f"the index is {found[0].dtype_name}: integers are taken"
    return None


def one_changing_size(call: Call) -> str | None:
    """Of the sizes of the result, and of the indices, one at most changes; of what a constant table has, any."""
    if call.operator == "aten.embedding.default" and call["weight"].is_constant:
        return None
    index = _the_index(call)[1] if call.has("indices") and call.operator == "aten.index.Tensor" else None
    index = index or call.get("index") or call.get("indices")
    shapes = [shape_of(item) for item in (index, call.result) if isinstance(item, Operand)]
    if isinstance(index, Operand) and index.rank != 1 and max(map(dynamic_count, shapes)) > 1:
        return "several sizes change from call to call, and the indices have several axes"
    return None


def _index(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    axis, index = _the_index(call)
    dropped = [at for at in range(len(call["indices"])) if _only_element(call, at)]
    indices = _indices(b, index, x.shape[axis])
    if dropped:
        x = b.call(
            "aten.squeeze_copy.dims", [x, tuple(dropped)], [s for at, s in enumerate(x.shape) if at not in dropped]
        )
    return looked_up(b, x, axis - sum(at < axis for at in dropped), indices)


def _gather(b: ProgramBuilder, call: Call) -> Tensor:
    x, index = b.tensor(call["self"]), b.tensor(call["index"])
    axis = call["dim"] % max(x.rank, 1)
    return b.call("aten.gather.default", [x, axis, index, call["sparse_grad"]], b.shape(call))


def counted_from_front(call: Call) -> str:
    """Which indices GPUs do not know."""
    return "" if _the_index(call)[1].is_constant else "computed indices below 0 are only known to this runtime"


_TYPES: Final = types(*FLOATS, *INTEGERS, "bool")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("embedding.default", _embedding, types(*FLOATS, of=("weight",)), one_changing_size),
    row("index_select.default", _index_select, _TYPES, passenger=True, runs=("aten.index.Tensor",)),
    row(
        "index.Tensor", _index, _TYPES, one_index, one_changing_size, passenger=True, special_values=counted_from_front
    ),
    row("gather.default", _gather, _TYPES, passenger=True),
)
