"""Operations that move elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn import functional

from ..kernel import Flags, Ints, Kernel, Tensor, Tensors, kernel


def _reshape(x: Tensor, shape: Ints) -> Tensor:
    sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    return x.reshape(sizes)


def _transpose(x: Tensor, perm: Ints) -> Tensor:
    return x.permute(perm)


def _expand_dims(x: Tensor, axes: Ints) -> Tensor:
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _squeeze(x: Tensor, axes: Ints | None = None) -> Tensor:
    if axes is None:
        return x.squeeze()
    if any(x.shape[axis] != 1 for axis in axes):
        raise ValueError(f"squeezes axes of sizes {[x.shape[axis] for axis in axes]}")
    return x.squeeze(axes)


def _tile(x: Tensor, reps: Ints) -> Tensor:
    return x.repeat(reps)


def _reverse(x: Tensor, axes: Ints | None = None) -> Tensor:
    return x.flip(tuple(range(x.dim())) if axes is None else axes)


def _concat(values: Tensors, axis: int, interleave: bool) -> Tensor:
    if interleave:
        return torch.stack(values, axis + 1).flatten(axis, axis + 1)
    return torch.cat([item.reshape(1) if item.dim() == 0 else item for item in values], axis)


def _stack(values: Tensors, axis: int) -> Tensor:
    return torch.stack(values, axis)


def _split(x: Tensor, axis: int, num_splits: int | None = None, split_sizes: Ints | None = None) -> Tensors:
    if split_sizes is not None:
        return torch.split_with_sizes(x, split_sizes, axis)
    if not num_splits or x.shape[axis] % num_splits:
        raise ValueError(f"splits {x.shape[axis]} in {num_splits}")
    return torch.split(x, x.shape[axis] // num_splits, axis)


def _pieces(
    x: Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None,
    begin_mask: Flags | None,
    end_mask: Flags | None,
    squeeze_mask: Flags | None,
) -> tuple[int | slice, ...]:
    """The index of a part of a value."""
    rank = x.dim()
    strides = stride or (1,) * rank
    if any(step < 0 for step in strides):
        raise ValueError("slices backwards")
    masks = [mask or (False,) * rank for mask in (begin_mask, end_mask, squeeze_mask)]
    if any(len(item) != rank for item in (begin, end, strides, *masks)):
        raise ValueError(f"slices of {rank} axes")
    index: list[int | slice] = []
    for axis in range(rank):
        first, last = (None if mask[axis] else bound[axis] for mask, bound in zip(masks, (begin, end), strict=False))
        if masks[2][axis]:
            index.append(begin[axis])
            continue
        index.append(slice(first, last, strides[axis]))
    return tuple(index)


def _slice_by_index(
    x: Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None = None,
    begin_mask: Flags | None = None,
    end_mask: Flags | None = None,
    squeeze_mask: Flags | None = None,
) -> Tensor:
    return x[_pieces(x, begin, end, stride, begin_mask, end_mask, squeeze_mask)]


def _slice_update(
    x: Tensor,
    update: Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None = None,
    begin_mask: Flags | None = None,
    end_mask: Flags | None = None,
    squeeze_mask: Flags | None = None,
) -> Tensor:
    result, index = x.clone(), _pieces(x, begin, end, stride, begin_mask, end_mask, squeeze_mask)
    if result[index].shape != update.shape:
        raise ValueError(f"updates {tuple(result[index].shape)} with {tuple(update.shape)}")
    result[index] = update
    return result


def _slice_by_size(x: Tensor, begin: Ints, size: Ints) -> Tensor:
    if not len(begin) == len(size) == x.dim():
        raise ValueError(f"slices of {x.dim()} axes")
    index = tuple(
        slice(first, total if count == -1 else first + count)
        for first, count, total in zip(begin, size, x.shape, strict=True)
    )
    return x[index]


def _pad(x: Tensor, pad: Ints, mode: str, constant_val: float) -> Tensor:
    pairs = [pad[at : at + 2] for at in range(0, len(pad), 2)]
    while len(pairs) > 1 and not any(pairs[0]):
        pairs.pop(0)
    flat = [item for pair in reversed(pairs) for item in pair]
    if mode == "constant":
        return functional.pad(x, flat, value=constant_val)
    # PyTorch pads the last axes in these modes, and requires one or two others before them.
    last = x.dim() - len(pairs)
    made = functional.pad(x.reshape(1, -1, *x.shape[last:]), flat, mode=mode)
    return made.reshape(*x.shape[:last], *made.shape[2:])


def _fill(shape: Ints, value: Tensor) -> Tensor:
    return value.expand(shape)


def _fill_like(ref_tensor: Tensor, value: Tensor) -> Tensor:
    return value.expand(ref_tensor.shape)


def _crop(x: Tensor, crop_height: Ints, crop_width: Ints) -> Tensor:
    """Images without some rows at the top and the bottom, and columns at the left and the right."""
    (top, bottom), (left, right) = crop_height, crop_width
    height, width = x.shape[-2:]
    if min(top, bottom, left, right) < 0 or top + bottom > height or left + right > width:
        raise ValueError(f"crops {height} x {width} by {crop_height} and {crop_width}")
    return x[..., top : height - bottom, left : width - right]


def _band_part(x: Tensor, lower: int, upper: int) -> Tensor:
    rows = torch.arange(x.shape[-2], device=x.device)[:, None]
    columns = torch.arange(x.shape[-1], device=x.device)[None]
    below = rows - columns <= lower if lower >= 0 else torch.ones_like(rows * columns, dtype=torch.bool)
    above = columns - rows <= upper if upper >= 0 else torch.ones_like(rows * columns, dtype=torch.bool)
    return torch.where(below & above, x, torch.zeros_like(x))


def _shape(x: Tensor) -> Tensor:
    return torch.tensor(x.shape, dtype=torch.int32)


def _range(end: int, start: int, step: int) -> Tensor:
    return torch.arange(start, end, step, dtype=torch.int32)


def _read_state(input: Tensor) -> Tensor:
    return input


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "read_state": _read_state,
    "reshape": _reshape,
    "transpose": _transpose,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "tile": _tile,
    "reverse": _reverse,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "slice_by_index": _slice_by_index,
    "slice_by_size": _slice_by_size,
    "slice_update": _slice_update,
    "pad": _pad,
    "fill": _fill,
    "fill_like": _fill_like,
    "crop": _crop,
    "band_part": _band_part,
}

KERNELS: Final[dict[str, Kernel]] = {
    **{name: kernel(function, moves=True) for name, function in _FUNCTIONS.items()},
    "shape": kernel(_shape, of_sizes=True),
    "range_1d": kernel(_range, of_sizes=True),
}
