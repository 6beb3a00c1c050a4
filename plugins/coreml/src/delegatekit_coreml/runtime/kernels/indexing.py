"""Operations that look elements up."""

from __future__ import annotations

from typing import Final

import torch

from ..kernel import Kernel, Tensor, kernel


def _counted(indices: Tensor, size: int) -> Tensor:
    """Indices counted from the front."""
    wide = indices.long()
    return torch.where(wide < 0, wide + size, wide)


def _gather(
    x: Tensor, indices: Tensor, axis: int, batch_dims: int | None = None, validate_indices: bool | None = None
) -> Tensor:
    if batch_dims:
        raise ValueError("batch_dims of gather are not supported")
    axis = axis % x.dim()
    found = _counted(indices, x.shape[axis])
    taken = torch.index_select(x, axis, found.reshape(-1))
    return taken.reshape((*x.shape[:axis], *found.shape, *x.shape[axis + 1 :]))


def _gather_along_axis(x: Tensor, indices: Tensor, axis: int, validate_indices: bool | None = None) -> Tensor:
    return torch.gather(x, axis, _counted(indices, x.shape[axis]))


def _gather_nd(
    x: Tensor, indices: Tensor, batch_dims: int | None = None, validate_indices: bool | None = None
) -> Tensor:
    if batch_dims:
        raise ValueError("batch_dims of gather_nd are not supported")
    axes = indices.shape[-1]
    # As vectors: without axes, PyTorch would read indices as numbers, which are unknown while sizes are checked.
    found = tuple(_counted(indices[..., axis], x.shape[axis]).reshape(-1) for axis in range(axes))
    return x[found].reshape((*indices.shape[:-1], *x.shape[axes:]))


def _one_hot(indices: Tensor, one_hot_vector_size: int, on_value: Tensor, off_value: Tensor, axis: int) -> Tensor:
    places = torch.arange(one_hot_vector_size, device=indices.device)
    axis = axis % (indices.dim() + 1)
    hot = indices.unsqueeze(axis) == places.reshape(-1, *[1] * (indices.dim() - axis))
    return torch.where(hot, on_value, off_value)


KERNELS: Final[dict[str, Kernel]] = {
    "gather": kernel(_gather),
    "gather_along_axis": kernel(_gather_along_axis),
    "gather_nd": kernel(_gather_nd),
    "one_hot": kernel(_one_hot),
}
