"""Operators that give images another size: resizing, pixel shuffle."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.constraints import nearest_pixels, rank
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from ..ir.sizes import is_fixed
from .common import REAL, lost_nan, tensor


def _resized(mode: str) -> Lower:
    def lower(b: ModelBuilder, call: Call) -> Value:
        x = tensor(b, call, "input")
        corners = call.has("align_corners") and bool(call["align_corners"])
        places = "asymmetric" if mode == "nearest" else "align_corners" if corners else "pytorch_half_pixel"
        made = b.op(
            "interpolate",
            x,
            b.integers(call.result.shape[2:]),
            mode=mode,
            shape_calculation_mode="sizes",
            coordinate_transformation_mode=places,
            nearest_mode="floor",
            axes=b.integers(range(2, x.rank)).output,
        )
        return b.declare(made, call.result.shape)

    return lower


def fixed_images(call: Call) -> str | None:
    """Sizes of images are fixed, and scale factors exactly their ratio."""
    before, after = call["input"].shape[2:], call.result.shape[2:]
    if not all(map(is_fixed, (*before, *after))):
        return "the size of the images changes from call to call"
    factors = call["scale_factors"]
    if not factors or call["output_size"] is not None or (call.has("align_corners") and call["align_corners"]):
        return None
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    return None if list(factors) == ratios else f"scale_factors {list(factors)} are not the ratio of the sizes"


def near_pixels(call: Call) -> str | None:
    """Bilinear or nearest, with zeros or the border around."""
    if call["interpolation_mode"] == 2 or call["padding_mode"] == 2:
        return "bicubic, or reflected at the border"
    return None


def several_pixels(call: Call) -> str | None:
    """Results have more than one pixel on each axis."""
    after = call.result.shape[2:]
    return None if all(size != 1 for size in after) else f"a result of {after}"


def _sampled(b: ModelBuilder, call: Call) -> Value:
    attributes = {
        "align_corners": bool(call["align_corners"]),
        "mode": ("bilinear", "nearest")[call["interpolation_mode"]],
        "padding_mode": ("zeros", "border")[call["padding_mode"]],
    }
    made = b.op("grid_sample", tensor(b, call, "input"), tensor(b, call, "grid"), attributes=attributes)
    return b.declare(made, call.result.shape)


def _shuffled(kind: str, name: str) -> Lower:
    def lower(b: ModelBuilder, call: Call) -> Value:
        made = b.op(kind, tensor(b, call), mode="depth_first", block_size=call[name])
        return b.declare(made, call.result.shape)

    return lower


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("upsample_nearest2d.vec", _resized("nearest"), REAL, fixed_images, nearest_pixels(), keep=True),
    row("upsample_bilinear2d.vec", _resized("linear_onnx"), REAL, fixed_images, several_pixels, keep=True),
    row("grid_sampler_2d.default", _sampled, REAL, near_pixels, keep=True, special_values=lost_nan),
    row(
        "pixel_shuffle.default",
        _shuffled("depth_to_space", "upscale_factor"),
        rank("self", 4),
        REAL,
        keep=True,
    ),
    row(
        "pixel_unshuffle.default",
        _shuffled("space_to_depth", "downscale_factor"),
        rank("self", 4),
        REAL,
        keep=True,
        static_only=True,
    ),
)
