"""Operators that move or select elements: views, permutations, slices, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from delegatekit_api import ProgramView

from .. import operators as ops
from ..arguments import argument, axis_of, shape_of
from ..layout import Tensor
from .context import Lowering, ProgramBuilder

if TYPE_CHECKING:
    from torch.fx import Node

#: XNNPACK joins at most this many values in one node.
_CONCATENATE_LIMIT = 5


def _reshape_to_result(b: ProgramBuilder, node: Node) -> Tensor:
    return b.reshape(b.tensor(node.args[0]), shape_of(node))  # type: ignore[arg-type]


def _permute(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    return x.permuted([axis_of(dim, len(x.shape)) for dim in argument(node, "dims")])


def slice_bounds(node: Node) -> tuple[int, int, int]:
    """Axis, first index and step of a slice, all counted from the front and within the size."""
    shape = shape_of(argument(node, "self"))
    axis, step = axis_of(argument(node, "dim"), len(shape)), argument(node, "step")
    start, _, _ = slice(argument(node, "start"), argument(node, "end"), step).indices(shape[axis])
    return axis, start, step


def _slice(b: ProgramBuilder, node: Node) -> Tensor:
    axis, start, step = slice_bounds(node)
    x, count = b.tensor(argument(node, "self")), shape_of(node)[axis]
    if step == 1:
        return b.slice(x, axis, start, count)
    # Every step-th element is the first column of rows as long as the step; the last row may need filling up.
    length = min(count * step, x.shape[axis] - start)
    block = b.slice(x, axis, start, length)
    missing = [(0, 0)] * len(x.shape)
    missing[axis] = (0, count * step - length)
    block = b.pad(block, missing, 0.0)
    rows = b.reshape(block, (*x.shape[:axis], count, step, *x.shape[axis + 1 :]))
    return b.reshape(b.slice(rows, axis + 1, 0, 1), shape_of(node))


def index_runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive ascending indices as (first, count): (3, 4, 0, 1) is (3, 2), (0, 2)."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and index == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs


def selected_indices(node: Node, program: ProgramView) -> list[int] | None:
    """The constant indices of `index_select`; None if they are computed."""
    indices = program.constant(argument(node, "index"))
    return None if indices is None else [int(index) for index in indices.reshape(-1).tolist()]


def _index_select(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    axis = axis_of(argument(node, "dim"), len(x.shape))
    indices = selected_indices(node, b.view)
    assert indices is not None
    return concatenated(b, [b.slice(x, axis, first, count) for first, count in index_runs(indices)], axis)


def _select(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    axis = axis_of(argument(node, "dim"), len(x.shape))
    index = axis_of(argument(node, "index"), x.shape[axis])
    return b.reshape(b.slice(x, axis, index, 1), shape_of(node))


def _cat(b: ProgramBuilder, node: Node) -> Tensor:
    tensors = [b.tensor(item) for item in argument(node, "tensors")]
    return concatenated(b, tensors, axis_of(argument(node, "dim"), len(tensors[0].shape)))


def concatenated(b: ProgramBuilder, tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors of equal rank joined along a logical axis, in the storage order that most of them have."""
    order = b.common_order(tensors, len(tensors[0].shape))
    operator = ops.Concatenate(order[axis])
    values = [b.stored(tensor, order) for tensor in tensors]
    while len(values) > 1:
        # In groups of five, the groups in groups of five: an element is copied as often as the tree is deep.
        groups = [values[at : at + _CONCATENATE_LIMIT] for at in range(0, len(values), _CONCATENATE_LIMIT)]
        values = [group[0] if len(group) == 1 else b.emit(operator, *group) for group in groups]
    return Tensor(values[0], order)


def pad_amounts(node: Node) -> list[tuple[int, int]]:
    """Elements added before and after each axis (negative: cut off)."""
    pads, rank = list(argument(node, "pad")), len(shape_of(argument(node, "self")))
    # PyTorch lists pairs from the last axis to the first.
    pairs = [(pads[at], pads[at + 1]) for at in range(0, len(pads), 2)]
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


def _constant_pad(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    amounts = pad_amounts(node)
    for axis, (before, after) in enumerate(amounts):
        if before < 0 or after < 0:
            start = max(0, -before)
            x = b.slice(x, axis, start, x.shape[axis] - start - max(0, -after))
    return b.pad(x, [(max(0, before), max(0, after)) for before, after in amounts], float(argument(node, "value")))


def _pixel_shuffle(b: ProgramBuilder, node: Node) -> Tensor:
    x, factor = b.tensor(argument(node, "self")), argument(node, "upscale_factor")
    batch, channels, height, width = shape_of(node)
    height, width = height // factor, width // factor
    blocks = b.reshape(x, (batch, channels, factor, factor, height, width))
    spread = blocks.permuted((0, 1, 4, 2, 5, 3))
    # Stored (N, H, r, W, r, C), so that the result is a feature map in NHWC.
    stored = b.stored(spread, (0, 5, 1, 2, 3, 4))
    return b.from_nhwc(b.reshaped(stored, (batch, height * factor, width * factor, channels)))


LOWERINGS: dict[str, Lowering] = {
    "aten.view_copy.default": _reshape_to_result,
    "aten.squeeze_copy.dims": _reshape_to_result,
    "aten.unsqueeze_copy.default": _reshape_to_result,
    "aten.permute_copy.default": _permute,
    "aten.slice_copy.Tensor": _slice,
    "aten.select_copy.int": _select,
    "aten.index_select.default": _index_select,
    "aten.cat.default": _cat,
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.pixel_shuffle.default": _pixel_shuffle,
}
