"""Operations on images: resizing, and pixels that become channels."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch.nn import functional

from ..kernel import Kernel, Tensor, kernel


def _resized(x: Tensor, height: int, width: int, mode: str, corners: bool | None = None) -> Tensor:
    images = x.reshape(-1, 1, *x.shape[-2:])
    made: Tensor = functional.interpolate(images, size=(height, width), mode=mode, align_corners=corners)
    return made.reshape(*x.shape[:-2], height, width)


def _scaled(size: int, factor: float) -> int:
    """A size times a factor: the product is one of float32, as the factor is."""
    return int(np.floor(np.float32(factor) * np.float32(size)))


def _upsample_bilinear(
    x: Tensor,
    scale_factor_height: float = 1.0,
    scale_factor_width: float = 1.0,
    align_corners: bool = True,
    half_pixel_centers: bool | None = None,
) -> Tensor:
    if half_pixel_centers is not None and half_pixel_centers == align_corners:
        raise ValueError("pixels that are sampled at their corners")
    height, width = _scaled(x.shape[-2], scale_factor_height), _scaled(x.shape[-1], scale_factor_width)
    return _resized(x, height, width, "bilinear", align_corners)


def _upsample_nearest(x: Tensor, scale_factor_height: float = 1.0, scale_factor_width: float = 1.0) -> Tensor:
    height, width = _scaled(x.shape[-2], scale_factor_height), _scaled(x.shape[-1], scale_factor_width)
    return _resized(x, height, width, "nearest")


def _resize_nearest(x: Tensor, target_size_height: int, target_size_width: int) -> Tensor:
    return _resized(x, target_size_height, target_size_width, "nearest")


def _pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    return torch.pixel_shuffle(x, upscale_factor)


def _pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    return torch.pixel_unshuffle(x, downscale_factor)


KERNELS: Final[dict[str, Kernel]] = {
    "upsample_bilinear": kernel(_upsample_bilinear),
    "upsample_nearest_neighbor": kernel(_upsample_nearest, moves=True),
    "resize_nearest_neighbor": kernel(_resize_nearest, moves=True),
    "pixel_shuffle": kernel(_pixel_shuffle, moves=True),
    "pixel_unshuffle": kernel(_pixel_unshuffle, moves=True),
}
