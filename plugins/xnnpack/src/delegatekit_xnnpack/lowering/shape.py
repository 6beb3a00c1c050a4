"""Operators that move or select elements: views, permutations, slices, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import Node

from delegatekit_api import ProgramView
from delegatekit_toolkit.sizes import Dynamic, Size, largest, minimum

from ..arguments import argument, axis_of, rank_of, shape_of, size_argument
from ..joined import Joined, parts_of, viewed
from ..layout import Tensor
from .context import Lowering, ProgramBuilder
from .elementwise import expand


def _reshape_to_result(b: ProgramBuilder, node: Node) -> Tensor | Joined:
    source: Node = node.args[0]  # type: ignore[assignment]
    x = b.joined(source)
    axes = viewed(x.axes, shape_of(node))
    if axes is None:
        return b.reshape(b.tensor(source), shape_of(node))
    return Joined(b.reshape(x.parts, parts_of(axes)), tuple(map(len, axes))).simplified()


def _permute(b: ProgramBuilder, node: Node) -> Tensor | Joined:
    x = b.joined(argument(node, "self"))
    return x.permuted([axis_of(dim, len(x.counts)) for dim in argument(node, "dims")]).simplified()


def slice_bounds(node: Node) -> tuple[int, Size | None, Size | None, int]:
    """Axis, first index, end and step of a slice, as they stand in the edge dialect: within the size, from the front.

    A start or end that is neither a number nor a size is None.
    """
    axis = axis_of(argument(node, "dim"), rank_of(argument(node, "self")))
    size, step = shape_of(argument(node, "self"))[axis], argument(node, "step")
    start, end = argument(node, "start"), argument(node, "end")
    if isinstance(size, int) and not isinstance(start, Node) and not isinstance(end, Node):
        start, end, _ = slice(start, end, step).indices(size)
        return axis, start, end, step
    start = 0 if start is None else size_argument(start)
    end = size if end is None else size_argument(end)
    if isinstance(end, int):
        end = minimum(end, size)
    return axis, start, end, step


def _slice(b: ProgramBuilder, node: Node) -> Tensor:
    axis, first, _, step = slice_bounds(node)
    x, count, start = b.tensor(argument(node, "self")), shape_of(node)[axis], largest(first or 0)
    if step == 1:
        return b.slice(x, axis, start, count)
    count = largest(count)
    # Every step-th element is the first column of rows as long as the step; the last row may need filling up.
    length = min(count * step, largest(x.shape[axis]) - start)
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


def chosen(b: ProgramBuilder, x: Tensor, axis: int, indices: Sequence[int]) -> Tensor:
    """The elements of these indices along an axis."""
    return b.concatenated([b.slice(x, axis, first, count) for first, count in index_runs(indices)], axis)


def _index_select(b: ProgramBuilder, node: Node) -> Tensor:
    x, indices = b.tensor(argument(node, "self")), selected_indices(node, b.view)
    assert indices is not None
    return chosen(b, x, axis_of(argument(node, "dim"), len(x.shape)), indices)


def indices_of_axes(node: Node, program: ProgramView) -> dict[int, list[int]] | None:
    """Axis -> its indices, of an indexing whose tensors are constants and choose along each axis by itself.

    They stand one behind the other, and all but one axis of each has size 1: axes stay where they are. Indices are
    counted from the front. None for every other indexing.
    """
    places = [(axis, index) for axis, index in enumerate(argument(node, "indices")) if index is not None]
    if not places or [axis for axis, _ in places] != list(range(places[0][0], places[0][0] + len(places))):
        return None
    found: dict[int, list[int]] = {}
    for number, (axis, operand) in enumerate(places):
        data = program.constant(operand)
        if data is None or data.dtype not in (torch.int64, torch.int32) or data.dim() > len(places):
            return None
        own = data.dim() - len(places) + number  # where the index's own axis is, counted as in NumPy's broadcasting
        if data.numel() != (data.shape[own] if own >= 0 else 1):
            return None
        size = shape_of(argument(node, "self"))[axis]
        if isinstance(size, Dynamic) and bool((data < 0).any()):
            return None
        found[axis] = [axis_of(int(index), largest(size)) for index in data.reshape(-1).tolist()]
    return found


def _index(b: ProgramBuilder, node: Node) -> Tensor:
    x, found = b.tensor(argument(node, "self")), indices_of_axes(node, b.view)
    assert found is not None
    for axis, indices in found.items():
        x = chosen(b, x, axis, indices)
    return x


def flipped_axes(node: Node) -> list[int]:
    """The axes that a flip reverses."""
    return [axis_of(dim, rank_of(argument(node, "self"))) for dim in argument(node, "dims")]


def _flip(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    for axis in flipped_axes(node):
        x = chosen(b, x, axis, range(largest(x.shape[axis]))[::-1])
    return x


def _slice_scatter(b: ProgramBuilder, node: Node) -> Tensor:
    axis, start, end, _ = slice_bounds(node)
    return _overwritten(b, node, axis, largest(start or 0), largest(end or 0), b.tensor(argument(node, "src")))


def _select_scatter(b: ProgramBuilder, node: Node) -> Tensor:
    shape = shape_of(node)
    axis = axis_of(argument(node, "dim"), len(shape))
    index = axis_of(argument(node, "index"), largest(shape[axis]))
    source = b.reshape(b.tensor(argument(node, "src")), (*shape[:axis], 1, *shape[axis + 1 :]))
    return _overwritten(b, node, axis, index, index + 1, source)


def _overwritten(b: ProgramBuilder, node: Node, axis: int, start: int, end: int, source: Tensor) -> Tensor:
    """The call's first operand with `source` from `start` to `end`."""
    x = b.tensor(argument(node, "self"))
    size = largest(x.shape[axis])
    pieces = [(x, 0, start), (source, 0, end - start), (x, end, size - end)]
    return b.concatenated([b.slice(tensor, axis, first, count) for tensor, first, count in pieces if count], axis)


def _copied(b: ProgramBuilder, node: Node) -> Tensor:
    source = b.tensor(argument(node, "src"))
    return source if source.shape == shape_of(node) else expand(b, source, shape_of(node))


def _select(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    axis = axis_of(argument(node, "dim"), len(x.shape))
    index = axis_of(argument(node, "index"), largest(x.shape[axis]))
    return b.reshape(b.slice(x, axis, index, 1), shape_of(node))


def _cat(b: ProgramBuilder, node: Node) -> Tensor:
    tensors = [b.tensor(item) for item in argument(node, "tensors")]
    return b.concatenated(tensors, axis_of(argument(node, "dim"), len(tensors[0].shape)))


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


def _pixel_unshuffle(b: ProgramBuilder, node: Node) -> Tensor:
    x, factor = b.tensor(argument(node, "self")), argument(node, "downscale_factor")
    batch, channels, height, width = x.shape
    cells = b.reshape(x, (batch, channels, height // factor, factor, width // factor, factor))
    return b.reshape(cells.permuted((0, 1, 3, 5, 2, 4)), shape_of(node))


LOWERINGS: dict[str, Lowering] = {
    "aten.view_copy.default": _reshape_to_result,
    "aten.squeeze_copy.dims": _reshape_to_result,
    "aten.unsqueeze_copy.default": _reshape_to_result,
    "aten.permute_copy.default": _permute,
    "aten.slice_copy.Tensor": _slice,
    "aten.select_copy.int": _select,
    "aten.index_select.default": _index_select,
    "aten.index.Tensor": _index,
    "aten.flip.default": _flip,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.select_scatter.default": _select_scatter,
    "aten.copy.default": _copied,
    "aten.cat.default": _cat,
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.pixel_shuffle.default": _pixel_shuffle,
    "aten.pixel_unshuffle.default": _pixel_unshuffle,
}
