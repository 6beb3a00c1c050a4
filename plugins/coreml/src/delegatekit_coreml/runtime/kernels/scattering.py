"""Operations that write elements to indices. With several elements for one index, the last one stays."""

from __future__ import annotations

from typing import Final

import torch

from ..kernel import Kernel, Tensor, kernel

#: MIL's modes -> PyTorch's reductions.
_REDUCTIONS: Final = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _written(flat: Tensor, places: Tensor, updates: Tensor, mode: str) -> Tensor:
    """A vector with updates at indices."""
    if mode == "update":
        return flat.scatter(0, places, updates)
    return flat.scatter_reduce(0, places, updates.to(flat.dtype), _REDUCTIONS[mode])


def _counted(indices: Tensor, size: int) -> Tensor:
    """Indices counted from the front, checked. Raises IndexError for others."""
    wide = indices.long()
    wide = torch.where(wide < 0, wide + size, wide)
    if not wide.is_meta and wide.numel() and not 0 <= int(wide.min()) <= int(wide.max()) < size:
        raise IndexError(f"an index is beyond {size} elements")
    return wide


def _scatter(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int,
    mode: str,
    validate_indices: bool | None = None,
) -> Tensor:
    axis = axis % data.dim()
    if updates.shape != (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]) or indices.dim() != 1:
        raise ValueError(f"writes {tuple(updates.shape)} at {tuple(indices.shape)} of {tuple(data.shape)}")
    places = _counted(indices, data.shape[axis])
    sizes = [-1 if at == axis else 1 for at in range(data.dim())]
    return _along_axis(data, places.reshape(sizes).expand(updates.shape), updates, axis, mode)


def _scatter_along_axis(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int,
    mode: str,
    validate_indices: bool | None = None,
) -> Tensor:
    axis = axis % data.dim()
    if indices.shape != updates.shape or indices.dim() != data.dim():
        raise ValueError(f"writes {tuple(updates.shape)} at {tuple(indices.shape)}")
    if any(size != data.shape[at] for at, size in enumerate(indices.shape) if at != axis):
        raise ValueError(f"writes {tuple(updates.shape)} to {tuple(data.shape)}")
    return _along_axis(data, _counted(indices, data.shape[axis]), updates, axis, mode)


def _along_axis(data: Tensor, places: Tensor, updates: Tensor, axis: int, mode: str) -> Tensor:
    flat, step, rank = torch.zeros_like(places), 1, data.dim()
    for at in reversed(range(rank)):
        order = torch.arange(places.shape[at], device=places.device)
        order = order.reshape([-1 if other == at else 1 for other in range(rank)])
        flat = flat + step * (places if at == axis else order)
        step *= data.shape[at]
    return _written(data.reshape(-1), flat.reshape(-1), updates.reshape(-1), mode).reshape(data.shape)


def _scatter_nd(
    data: Tensor, indices: Tensor, updates: Tensor, mode: str, validate_indices: bool | None = None
) -> Tensor:
    axes = indices.shape[-1]
    if not 0 < axes <= data.dim() or updates.shape != (*indices.shape[:-1], *data.shape[axes:]):
        raise ValueError(f"writes {tuple(updates.shape)} at {tuple(indices.shape)} of {tuple(data.shape)}")
    rows = data[(0,) * axes].numel()
    base = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=indices.device)
    for axis in range(axes):
        base = base * data.shape[axis] + _counted(indices[..., axis], data.shape[axis])
    places = base.reshape(-1, 1) * rows + torch.arange(rows, device=indices.device)
    return _written(data.reshape(-1), places.reshape(-1), updates.reshape(-1), mode).reshape(data.shape)


KERNELS: Final[dict[str, Kernel]] = {
    "scatter": kernel(_scatter),
    "scatter_along_axis": kernel(_scatter_along_axis),
    "scatter_nd": kernel(_scatter_nd),
}
