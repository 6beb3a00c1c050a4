"""Constraints of operators that move elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from delegatekit_api import ProgramView
from delegatekit_toolkit.sizes import Dynamic, dynamic_count, largest, minimum, smallest

from ..arguments import argument, axis_of, rank_of, shape_of
from ..graph import MAX_RANK
from ..joined import reshape_obstacle, view_obstacle
from ..lowering import elementwise
from ..lowering.shape import flipped_axes, index_runs, indices_of_axes, pad_amounts, selected_indices, slice_bounds
from .general import RUN_LIMIT

if TYPE_CHECKING:
    from torch.fx import Node


def plain_conversion(node: Node, program: ProgramView) -> str | None:
    """To float32, float16 or bfloat16 from another of these, and nothing else."""
    for name in ("layout", "device", "memory_format"):
        if argument(node, name) not in (None, torch.strided, torch.device("cpu"), torch.preserve_format):
            return f"{name} = {argument(node, name)}: only the type of the elements is converted"
    return None


def known_repeats(node: Node, program: ProgramView) -> str | None:
    """Axes are expanded to sizes that do not change."""
    shape, target = shape_of(node.args[0]), shape_of(node)  # type: ignore[arg-type]
    kept = (1,) * (len(target) - len(shape)) + shape
    changing = [want for have, want in zip(kept, target, strict=True) if have != want and isinstance(want, Dynamic)]
    return f"an axis is repeated {changing[0]} times, which changes from call to call" if changing else None


def few_repeats(node: Node, program: ProgramView) -> str | None:
    """An axis for each repetition fits into 6 axes; where several sizes change, 25 repetitions at most."""
    tiles = elementwise.repeat_tiles(node)
    if dynamic_count(shape_of(node)) > 1:
        most = max(tile for tile, _ in tiles)
        return None if most <= RUN_LIMIT else f"{most} repetitions where several sizes change"
    axes = sum(2 if tile > 1 else 1 for tile, _ in tiles)
    if axes <= MAX_RANK:
        return None
    return f"{len(tiles)} axes, {axes - len(tiles)} of them repeated, need {axes}: XNNPACK allows {MAX_RANK}"


def viewable(node: Node, program: ProgramView) -> str | None:
    """At most one size of the result changes, or those that change are neither joined nor cut."""
    return view_obstacle(node)


def sliceable(node: Node, program: ProgramView) -> str | None:
    """The step is 1, or one axis more fits into 6; a slice of an axis that changes begins and ends at known places."""
    axis, start, _, step = slice_bounds(node)
    shape, result = shape_of(argument(node, "self")), shape_of(node)
    size, count = shape[axis], result[axis]
    if not isinstance(start, int):
        return "the slice begins at a place that changes from call to call"
    if isinstance(size, Dynamic) and (
        step != 1 or minimum(start + largest(count), size) - start != count  # what XNNPACK's slice leaves
    ):
        return f"a slice of {count} elements, step {step}, of {size}: XNNPACK's slices end at a known place"
    if step == 1:
        return None
    if rank_of(node) == MAX_RANK:
        return f"step {step} along one of {MAX_RANK} axes: XNNPACK slices with step 1"
    before, after = shape[:axis], shape[axis + 1 :]
    rows = (*before, count, step, *after)
    return reshape_obstacle((*before, count * step, *after), rows) or reshape_obstacle(
        (*before, count, 1, *after), result
    )


def selects_known(node: Node, program: ProgramView) -> str | None:
    """The index is known, and exists in every call."""
    shape, index = shape_of(argument(node, "self")), argument(node, "index")
    axis = axis_of(argument(node, "dim"), len(shape))
    size = shape[axis]
    if not isinstance(index, int) or (isinstance(size, Dynamic) and not 0 <= index < smallest(size)):
        return "the index is counted from the end of an axis that changes, or computed"
    return reshape_obstacle((*shape[:axis], 1, *shape[axis + 1 :]), shape_of(node))


def few_runs(node: Node, program: ProgramView) -> str | None:
    """The indices are constants that form at most 25 runs of neighbours."""
    indices = selected_indices(node, program)
    if indices is None:
        return "index is computed: XNNPACK has no gather"
    runs = len(index_runs(indices))
    shape = shape_of(argument(node, "self"))
    size = shape[axis_of(argument(node, "dim"), len(shape))]
    if isinstance(size, Dynamic) and max(indices) >= smallest(size):
        return f"index {max(indices)} does not exist in every call: the axis has {size} elements"
    return None if runs <= RUN_LIMIT else f"{runs} separate runs of indices: XNNPACK has no gather"


def same_ranks(node: Node, program: ProgramView) -> str | None:
    """All tensors have the same rank."""
    ranks = {rank_of(operand) for operand in argument(node, "tensors")}
    return None if len(ranks) == 1 else f"tensors of ranks {sorted(ranks)} are joined"


def pads_what_is_left(node: Node, program: ProgramView) -> str | None:
    """Negative amounts leave something to pad, and do not count from the end of an axis that changes."""
    for size, (before, after) in zip(shape_of(argument(node, "self")), pad_amounts(node), strict=True):
        if smallest(size) + min(0, before) + min(0, after) < 1:
            return f"{before} and {after} around {size} elements cut everything off"
        if isinstance(size, Dynamic) and after < 0:
            return (
                f"{-after} elements are cut off the end of an axis that changes: XNNPACK's slices end at a known place"
            )
    return None


def shuffles_a_batch(node: Node, program: ProgramView) -> str | None:
    """The input is (N, C, H, W), of which one size may change."""
    shape = shape_of(argument(node, "self"))
    if len(shape) != 4:
        return f"an input of rank {len(shape)}: only (N, C, H, W) is taken"
    return f"several sizes of {shape} change from call to call" if dynamic_count(shape) > 1 else None


def halves_known(node: Node, program: ProgramView) -> str | None:
    """The axis that is halved does not change."""
    shape = shape_of(argument(node, "self"))
    size = shape[argument(node, "dim") % len(shape)]
    return f"half of {size} elements is not at a known place" if isinstance(size, Dynamic) else None


# -- composed ----------------------------------------------------------------------------------------------------------


def chosen_by_constants(node: Node, program: ProgramView) -> str | None:
    """The indices are constants, those of each axis by themselves, and form at most 25 runs of neighbours."""
    found = indices_of_axes(node, program)
    if found is None:
        return "the indices are computed, or of several axes together: XNNPACK has no gather"
    for axis, indices in found.items():
        size = shape_of(argument(node, "self"))[axis]
        runs = len(index_runs(indices))
        if runs > RUN_LIMIT:
            return f"{runs} separate runs of indices: XNNPACK has no gather"
        if isinstance(size, Dynamic) and max(indices) >= smallest(size):
            return f"index {max(indices)} does not exist in every call: the axis has {size} elements"
    return None


def few_reversed(node: Node, program: ProgramView) -> str | None:
    """The axes that are reversed have at most 25 elements, and do not change."""
    shape = shape_of(argument(node, "self"))
    for axis in flipped_axes(node):
        if isinstance(shape[axis], Dynamic) or shape[axis] > RUN_LIMIT:  # type: ignore[operator]
            return f"{shape[axis]} elements are reversed: XNNPACK's slices do not run backwards"
    return None


def written_at_known_places(node: Node, program: ProgramView) -> str | None:
    """The axis that is written along does not change, the places are known, and the step is 1."""
    shape = shape_of(node)
    if "select" in str(node.target):
        index = argument(node, "index")
        axis = axis_of(argument(node, "dim"), len(shape))
        known = isinstance(index, int) and not isinstance(shape[axis], Dynamic)
        if not known:
            return "the place that is written is computed, or along an axis that changes"
        return "several sizes change from call to call" if dynamic_count(shape) > 1 else None
    axis, start, end, step = slice_bounds(node)
    if step != 1:
        return f"step {step}: XNNPACK's slices have no step"
    if isinstance(shape[axis], Dynamic) or not isinstance(start, int) or not isinstance(end, int):
        return "the place that is written is computed, or along an axis that changes"
    return None if end > start else "nothing is written"


def copied_whole(node: Node, program: ProgramView) -> str | None:
    """What is copied has the result's shape, or is repeated a known number of times."""
    source, target = shape_of(argument(node, "src")), shape_of(node)
    if source == target or not dynamic_count(target):
        return None
    return f"{source} is repeated to {target}, which changes from call to call"


def scales_down(node: Node, program: ProgramView) -> str | None:
    """The input is (N, C, H, W), of which H and W do not change, and one other may."""
    shape = shape_of(argument(node, "self"))
    if len(shape) != 4:
        return f"an input of rank {len(shape)}: only (N, C, H, W) is taken"
    if dynamic_count(shape[2:]) or dynamic_count(shape) > 1:
        return f"sizes of {shape} change from call to call"
    return None
