"""Operators that move, select or repeat elements: views, permutations, slices, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, pads_of
from delegatekit_toolkit.sizes import Dynamic, Size, dynamic_count, largest, minimum, smallest
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of, size_of

from ..ir.joined import Joined, parts_of, reshape_obstacle, viewed
from ..ir.layout import Tensor
from ..ir.types import MAX_RANK
from .common import RUN_LIMIT, chosen, expand, float32_number, index_runs, not_scalar
from .groups import view_obstacle
from .precision import always, regroups_nothing
from .program import Lower, ProgramBuilder

# -- views and conversions ---------------------------------------------------------------------------------------------


def viewable(call: Call) -> str | None:
    """At most one size of the result changes, or those that change are neither joined nor cut."""
    return view_obstacle(call)


def _reshape_to_result(b: ProgramBuilder, call: Call) -> Tensor | Joined:
    source = call["self"]
    x = b.joined(source)
    axes = viewed(x.axes, shape_of(call.result))
    if axes is None:
        return b.reshape(b.tensor(source), shape_of(call.result))
    return Joined(b.reshape(x.parts, parts_of(axes)), tuple(map(len, axes))).simplified()


def _permute(b: ProgramBuilder, call: Call) -> Tensor | Joined:
    x = b.joined(call["self"])
    return x.permuted([axis_of(dim, len(x.counts)) for dim in call["dims"]]).simplified()


def plain_conversion(call: Call) -> str | None:
    """To float32, float16 or bfloat16 from another of these, and nothing else."""
    for name in ("layout", "device", "memory_format"):
        if call[name] not in (None, torch.strided, torch.device("cpu"), torch.preserve_format):
            return f"{name} = {call[name]}: only the type of the elements is converted"
    return None


def _to_type(b: ProgramBuilder, call: Call) -> Tensor:
    # The result gets the call's type; the input of the conversion is the program's rounded value.
    return b.stored_tensor(call["self"])


# -- repetition --------------------------------------------------------------------------------------------------------


def known_repeats(call: Call) -> str | None:
    """Axes are expanded to sizes that do not change."""
    shape, target = shape_of(call["self"]), shape_of(call.result)
    kept = (1,) * (len(target) - len(shape)) + shape
    changing = [want for have, want in zip(kept, target, strict=True) if have != want and isinstance(want, Dynamic)]
    return f"an axis is repeated {changing[0]} times, which changes from call to call" if changing else None


def _expand(b: ProgramBuilder, call: Call) -> Tensor:
    return expand(b, b.tensor(call["self"]), shape_of(call.result))


def few_repeats(call: Call) -> str | None:
    """An axis for each repetition fits into 6 axes; if several sizes change, 25 repetitions at most."""
    tiles = repeat_tiles(call)
    if dynamic_count(shape_of(call.result)) > 1:
        most = max(tile for tile, _ in tiles)
        return None if most <= RUN_LIMIT else f"{most} repetitions where several sizes change"
    axes = sum(2 if tile > 1 else 1 for tile, _ in tiles)
    if axes <= MAX_RANK:
        return None
    return f"{len(tiles)} axes, {axes - len(tiles)} of them repeated, need {axes}: XNNPACK allows {MAX_RANK}"


def repeat_tiles(call: Call) -> list[tuple[int, Size]]:
    """For each axis of the result of `repeat`: the number of repetitions, and the size that is repeated."""
    repeats, shape = call["repeats"], shape_of(call["self"])
    return list(zip(repeats, (1,) * (len(repeats) - len(shape)) + shape, strict=True))


def _repeat(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    tiles, sizes = repeat_tiles(call), []
    if dynamic_count(shape_of(call.result)) > 1:
        x = b.reshape(x, tuple(size for _, size in tiles))
        for axis, (tile, _) in enumerate(tiles):
            x = b.concatenated([x] * tile, axis)
        return x
    for tile, size in tiles:
        sizes += [1, size] if tile > 1 else [size]
    wanted: list[Size] = []
    for tile, size in tiles:
        wanted += [tile, size] if tile > 1 else [size]
    return b.reshape(expand(b, b.reshape(x, tuple(sizes)), tuple(wanted)), shape_of(call.result))


def copied_whole(call: Call) -> str | None:
    """The source has the result's shape, or is repeated a known number of times."""
    source, target = shape_of(call["src"]), shape_of(call.result)
    if source == target or not dynamic_count(target):
        return None
    return f"{source} is repeated to {target}, which changes from call to call"


def _copied(b: ProgramBuilder, call: Call) -> Tensor:
    source = b.tensor(call["src"])
    return source if source.shape == shape_of(call.result) else expand(b, source, shape_of(call.result))


# -- slices ------------------------------------------------------------------------------------------------------------


def sliceable(call: Call) -> str | None:
    """The step is 1, or one axis more fits into 6; a slice of an axis that changes begins and ends at known places."""
    axis, start, _, step = slice_bounds(call)
    shape, result = shape_of(call["self"]), shape_of(call.result)
    size, count = shape[axis], result[axis]
    if not isinstance(start, int):
        return "the slice begins at a place that changes from call to call"
    if isinstance(size, Dynamic) and (
        step != 1 or minimum(start + largest(count), size) - start != count  # the result of XNNPACK's slice
    ):
        return f"a slice of {count} elements, step {step}, of {size}: XNNPACK's slices end at a fixed place"
    if step == 1:
        return None
    if call.result.rank == MAX_RANK:
        return f"step {step} along one of {MAX_RANK} axes: XNNPACK slices with step 1"
    before, after = shape[:axis], shape[axis + 1 :]
    rows = (*before, count, step, *after)
    return reshape_obstacle((*before, count * step, *after), rows) or reshape_obstacle(
        (*before, count, 1, *after), result
    )


def slice_bounds(call: Call) -> tuple[int, Size | None, int | None, int]:
    """Axis, first index, end and step of a slice, as in the edge dialect: within the size, from the front.

    A start that is neither a number nor a size is None. So is the end unless all are numbers: for an axis that changes,
    the result's size determines the end of a slice.
    """
    axis = axis_of(call["dim"], call["self"].rank)
    size, step = shape_of(call["self"])[axis], call["step"]
    start, end = call["start"], call["end"]
    if isinstance(size, int) and isinstance(start, int | None) and isinstance(end, int | None):
        start, end, _ = slice(start, end, step).indices(size)
        return axis, start, end, step
    if start is None:
        return axis, 0, None, step
    return axis, size_of(start) if isinstance(start, int | torch.SymInt) else None, None, step


def _slice(b: ProgramBuilder, call: Call) -> Tensor:
    axis, start, _, step = slice_bounds(call)
    assert isinstance(start, int)
    x, count = b.tensor(call["self"]), shape_of(call.result)[axis]
    if step == 1:
        return b.slice(x, axis, start, count)
    count = largest(count)
    # Every step-th element is the first column of rows as long as the step; the last row may need padding.
    length = min(count * step, largest(x.shape[axis]) - start)
    block = b.slice(x, axis, start, length)
    missing = [(0, 0)] * len(x.shape)
    missing[axis] = (0, count * step - length)
    block = b.pad(block, missing, 0.0)
    rows = b.reshape(block, (*x.shape[:axis], count, step, *x.shape[axis + 1 :]))
    return b.reshape(b.slice(rows, axis + 1, 0, 1), shape_of(call.result))


def selects_known(call: Call) -> str | None:
    """The index is known, and exists in every call."""
    shape, index = shape_of(call["self"]), call["index"]
    axis = axis_of(call["dim"], len(shape))
    size = shape[axis]
    if not isinstance(index, int) or (isinstance(size, Dynamic) and not 0 <= index < smallest(size)):
        return "the index is counted from the end of an axis that changes, or computed"
    return reshape_obstacle((*shape[:axis], 1, *shape[axis + 1 :]), shape_of(call.result))


def _select(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    axis = axis_of(call["dim"], len(x.shape))
    index = axis_of(call["index"], largest(x.shape[axis]))
    return b.reshape(b.slice(x, axis, index, 1), shape_of(call.result))


# -- selections by constant indices ------------------------------------------------------------------------------------


def few_runs(call: Call) -> str | None:
    """The indices are constants that form at most 25 runs of neighbors."""
    shape = shape_of(call["self"])
    return _choice_obstacle(selected_indices(call), shape[axis_of(call["dim"], len(shape))])


def _choice_obstacle(indices: Sequence[int], size: Size) -> str | None:
    """The reason why elements of an axis cannot be `chosen` by these indices; None if they can."""
    runs = len(index_runs(indices))
    if runs > RUN_LIMIT:
        return f"{runs} separate runs of indices: XNNPACK has no gather"
    for index in indices:
        if not 0 <= index < smallest(size):
            return f"index {index} has no fixed place in every call: the axis has {size} elements"
    return None


def selected_indices(call: Call) -> list[int]:
    """The constant indices of `index_select`: no row accepts computed integers."""
    indices = call["index"].constant
    assert indices is not None
    return [int(index) for index in indices.reshape(-1).tolist()]


def _index_select(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    return chosen(b, x, axis_of(call["dim"], len(x.shape)), selected_indices(call))


def chosen_by_constants(call: Call) -> str | None:
    """The indices are constants, those of each axis by themselves, and form at most 25 runs of neighbors."""
    found = indices_of_axes(call)
    if found is None:
        return "the indices are computed, or of several axes together: XNNPACK has no gather"
    shape = shape_of(call["self"])
    obstacles = (_choice_obstacle(indices, shape[axis]) for axis, indices in found.items())
    return next(filter(None, obstacles), None)


def indices_of_axes(call: Call) -> dict[int, list[int]] | None:
    """Axis -> its indices, of an indexing whose tensors are constants and select along each axis separately.

    They are consecutive, and all but one axis of each has size 1: axes keep their positions. Indices are counted from
    the front, unless the axis changes. None for every other indexing.
    """
    places = [(axis, index) for axis, index in enumerate(call["indices"]) if index is not None]
    if not places or [axis for axis, _ in places] != list(range(places[0][0], places[0][0] + len(places))):
        return None
    found: dict[int, list[int]] = {}
    for number, (axis, operand) in enumerate(places):
        data = operand.constant
        if data is None or data.dtype not in (torch.int64, torch.int32) or data.dim() > len(places):
            return None
        own = data.dim() - len(places) + number  # position of the index's own axis, counted as in NumPy's broadcasting
        if data.numel() != (data.shape[own] if own >= 0 else 1):
            return None
        size, indices = shape_of(call["self"])[axis], [int(index) for index in data.reshape(-1).tolist()]
        found[axis] = indices if isinstance(size, Dynamic) else [axis_of(index, size) for index in indices]
    return found


def _index(b: ProgramBuilder, call: Call) -> Tensor:
    x, found = b.tensor(call["self"]), indices_of_axes(call)
    assert found is not None
    for axis, indices in found.items():
        x = chosen(b, x, axis, indices)
    return x


def few_reversed(call: Call) -> str | None:
    """The axes that are reversed have at most 25 elements, and do not change."""
    shape = shape_of(call["self"])
    for axis in flipped_axes(call):
        if isinstance(shape[axis], Dynamic) or shape[axis] > RUN_LIMIT:  # type: ignore[operator]
            return f"{shape[axis]} elements are reversed: XNNPACK's slices do not run backwards"
    return None


def flipped_axes(call: Call) -> list[int]:
    """The axes that a flip reverses: none for a tensor without axes, for which PyTorch accepts one."""
    rank = call["self"].rank
    return [axis_of(dim, rank) for dim in call["dims"]] if rank else []


def _flip(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    for axis in flipped_axes(call):
        x = chosen(b, x, axis, range(largest(x.shape[axis]))[::-1])
    return x


# -- writing into a tensor ---------------------------------------------------------------------------------------------


def written_at_known_places(call: Call) -> str | None:
    """The axis that is written along does not change, the places are known, and the step is 1."""
    shape = shape_of(call.result)
    if call.has("index"):
        index = call["index"]
        axis = axis_of(call["dim"], len(shape))
        known = isinstance(index, int) and not isinstance(shape[axis], Dynamic)
        if not known:
            return "the place that is written is computed, or along an axis that changes"
        return "several sizes change from call to call" if dynamic_count(shape) > 1 else None
    axis, start, end, step = slice_bounds(call)
    if step != 1:
        return f"step {step}: XNNPACK's slices have no step"
    if end is None:
        return "the place that is written is computed, or along an axis that changes"
    assert isinstance(start, int)
    return None if end > start else "nothing is written"


def _slice_scatter(b: ProgramBuilder, call: Call) -> Tensor:
    axis, start, end, _ = slice_bounds(call)
    assert isinstance(start, int) and end is not None
    return _overwritten(b, call, axis, start, end, b.tensor(call["src"]))


def _select_scatter(b: ProgramBuilder, call: Call) -> Tensor:
    shape = shape_of(call.result)
    axis = axis_of(call["dim"], len(shape))
    index = axis_of(call["index"], largest(shape[axis]))
    source = b.reshape(b.tensor(call["src"]), (*shape[:axis], 1, *shape[axis + 1 :]))
    return _overwritten(b, call, axis, index, index + 1, source)


def _overwritten(b: ProgramBuilder, call: Call, axis: int, start: int, end: int, source: Tensor) -> Tensor:
    """The call's first operand with `source` from `start` to `end`."""
    x = b.tensor(call["self"])
    size = largest(x.shape[axis])
    pieces = [(x, 0, start), (source, 0, end - start), (x, end, size - end)]
    return b.concatenated([b.slice(tensor, axis, first, count) for tensor, first, count in pieces if count], axis)


# -- joining and padding -----------------------------------------------------------------------------------------------


def _cat(b: ProgramBuilder, call: Call) -> Tensor:
    tensors = [b.tensor(item) for item in call["tensors"]]
    return b.concatenated(tensors, axis_of(call["dim"], len(tensors[0].shape)))


def _constant_pad(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    # Negative amounts, which crop, are slices already.
    return b.pad(x, pads_of(call["pad"], len(x.shape)), float(call["value"]))


# -- pixels and channels -----------------------------------------------------------------------------------------------


def shuffles_a_batch(call: Call) -> str | None:
    """The input is (N, C, H, W), of which one size may change."""
    shape = shape_of(call["self"])
    if len(shape) != 4:
        return f"an input of rank {len(shape)}: only (N, C, H, W) is taken"
    return f"several sizes of {shape} change from call to call" if dynamic_count(shape) > 1 else None


def _pixel_shuffle(b: ProgramBuilder, call: Call) -> Tensor:
    x, factor = b.tensor(call["self"]), call["upscale_factor"]
    batch, channels, height, width = shape_of(call.result)
    height, width = height // factor, width // factor
    blocks = b.reshape(x, (batch, channels, factor, factor, height, width))
    spread = blocks.permuted((0, 1, 4, 2, 5, 3))
    # Stored (N, H, r, W, r, C), so that the result is a feature map in NHWC.
    stored = b.stored(spread, (0, 5, 1, 2, 3, 4))
    return b.from_nhwc(b.reshaped(stored, (batch, height * factor, width * factor, channels)))


def scales_down(call: Call) -> str | None:
    """The input is (N, C, H, W), of which H and W do not change, and one other may."""
    shape = shape_of(call["self"])
    if len(shape) != 4:
        return f"an input of rank {len(shape)}: only (N, C, H, W) is taken"
    if dynamic_count(shape[2:]) or dynamic_count(shape) > 1:
        return f"sizes of {shape} change from call to call"
    return None


def _pixel_unshuffle(b: ProgramBuilder, call: Call) -> Tensor:
    x, factor = b.tensor(call["self"]), call["downscale_factor"]
    batch, channels, height, width = x.shape
    cells = b.reshape(x, (batch, channels, height // factor, factor, width // factor, factor))
    return b.reshape(cells.permuted((0, 1, 3, 5, 2, 4)), shape_of(call.result))


# -- the rows ----------------------------------------------------------------------------------------------------------


def _pads_with_zero(call: Call) -> bool:
    """On processors without float16, the runtime converts all values to float32, except those that are filled in."""
    return bool(call["value"] == 0)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "view_copy.default unsqueeze_copy.default squeeze_copy.dims",
        _reshape_to_result,
        viewable,
        passenger=True,
        takes_sizes=True,
        own_type=regroups_nothing,
    ),
    row("permute_copy.default", _permute, passenger=True, own_type=regroups_nothing),
    row("_to_copy.default", _to_type, plain_conversion, passenger=True, own_type=regroups_nothing, converts=True),
    row("expand_copy.default", _expand, known_repeats, passenger=True, takes_sizes=True, float16=always),
    row("repeat.default", _repeat, few_repeats, passenger=True, float16=always),
    row("copy.default", _copied, copied_whole, passenger=True, constants_of_any_type="src"),
    row("slice_copy.Tensor", _slice, sliceable, passenger=True, takes_sizes=True, own_type=regroups_nothing),
    row("select_copy.int", _select, selects_known, passenger=True, takes_sizes=True, own_type=regroups_nothing),
    row(
        "index_select.default",
        _index_select,
        not_scalar,
        few_runs,
        passenger=True,
        constants_of_any_type="index",
        own_type=regroups_nothing,
    ),
    row("index.Tensor", _index, chosen_by_constants, passenger=True, constants_of_any_type="indices"),
    row("flip.default", _flip, few_reversed, passenger=True),
    row("slice_scatter.default", _slice_scatter, written_at_known_places, passenger=True),
    row("select_scatter.default", _select_scatter, written_at_known_places, passenger=True),
    row("cat.default", _cat, passenger=True, own_type=regroups_nothing),
    row(
        "constant_pad_nd.default",
        _constant_pad,
        float32_number("value"),
        passenger=True,
        own_type=_pads_with_zero,
    ),
    row(
        "pixel_shuffle.default", _pixel_shuffle, shuffles_a_batch, keep=True, passenger=True, own_type=regroups_nothing
    ),
    row("pixel_unshuffle.default", _pixel_unshuffle, scales_down, keep=True, passenger=True),
)
