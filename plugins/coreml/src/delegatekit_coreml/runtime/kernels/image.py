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
    """A size times a factor: a float32 product, as the factor is float32."""
    return int(np.floor(np.float32(factor) * np.float32(size)))


def _upsample_bilinear(
    x: Tensor,
    scale_factor_height: float,
    scale_factor_width: float,
    align_corners: bool,
    half_pixel_centers: bool | None = None,
) -> Tensor:
    if half_pixel_centers is not None and half_pixel_centers == align_corners:
        raise ValueError("pixels that are sampled at their corners")
    height, width = _scaled(x.shape[-2], scale_factor_height), _scaled(x.shape[-1], scale_factor_width)
    return _resized(x, height, width, "bilinear", align_corners)


def _upsample_nearest(x: Tensor, scale_factor_height: float, scale_factor_width: float) -> Tensor:
    height, width = _scaled(x.shape[-2], scale_factor_height), _scaled(x.shape[-1], scale_factor_width)
    return _resized(x, height, width, "nearest")


def _resample(
    x: Tensor,
    coordinates: Tensor,
    sampling_mode: str,
    padding_mode: str,
    padding_value: float,
    coordinates_mode: str,
    align_corners: bool,
) -> Tensor:
    """Samples of images (B, C, H, W) at coordinates (B, h, w, 2), each x and y."""
    modes = {"constant": "zeros", "border": "border", "reflection": "reflection", "symmetric": "reflection"}
    wanted = {"reflection": True, "symmetric": False}.get(padding_mode, align_corners)
    if coordinates_mode != "normalized_minus_one_to_one" or wanted != align_corners:
        raise ValueError(f"{coordinates_mode:.40} with {padding_mode:.20} and align_corners = {align_corners}")
    if padding_mode == "constant" and padding_value:
        raise ValueError(f"padding_value = {padding_value}: only 0 is supported")
    mode = {"bilinear": "bilinear", "nearest": "nearest"}[sampling_mode]
    places = coordinates.to(torch.float32)
    return functional.grid_sample(x, places, mode, modes[padding_mode], align_corners)


def _pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    return torch.pixel_shuffle(x, upscale_factor)


def _pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    return torch.pixel_unshuffle(x, downscale_factor)


KERNELS: Final[dict[str, Kernel]] = {
    "upsample_bilinear": kernel(_upsample_bilinear),
    "upsample_nearest_neighbor": kernel(_upsample_nearest),
    "resample": kernel(_resample),
    "pixel_shuffle": kernel(_pixel_shuffle),
    "pixel_unshuffle": kernel(_pixel_unshuffle),
}
