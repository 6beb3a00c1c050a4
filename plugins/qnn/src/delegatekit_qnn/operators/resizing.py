"""Images in other sizes."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.constraints import nearest_pixels
from delegatekit_toolkit.layout import to_channels_last
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar
from ..ir.types import DataType
from ..ir.values import Value
from .common import REAL
from .program import Lower, ProgramBuilder

#: Modes of `Resize`.
_CUBIC: Final = 2
_HALF_PIXELS: Final = 0
_CORNERS: Final = 2


def _resized(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.activation(call["input"])
        order = to_channels_last(4)
        tensor = b.stored(x, order)
        n, c, h, w = call.result.shape
        corners = bool(call.get("align_corners", False))
        half = kind == "ResizeBilinear" and not corners
        datatype, encoding = b.result_type(call)
        made = b.emit(
            kind,
            [tensor],
            (n, h, w, c),
            datatype,
            encoding,
            align_corners=Scalar(DataType.BOOL, corners),
            half_pixel_centers=Scalar(DataType.BOOL, half),
        )
        return Value(made, order)

    return lower


def _cubic(b: ProgramBuilder, call: Call) -> Value:
    x = b.activation(call["input"])
    order = to_channels_last(4)
    n, c, h, w = call.result.shape
    datatype, encoding = b.result_type(call)
    made = b.emit(
        "Resize",
        [b.stored(x, order)],
        (n, h, w, c),
        datatype,
        encoding,
        interpolation_mode=Scalar(DataType.UINT32, _CUBIC),
        transformation_mode=Scalar(DataType.UINT32, _CORNERS if call["align_corners"] else _HALF_PIXELS),
        cubic_coeff=Scalar(DataType.FLOAT32, -0.75),
        exclude_outside=Scalar(DataType.BOOL, False),
    )
    return Value(made, order)


def _sampled(b: ProgramBuilder, call: Call) -> Value:
    """Images at places that are computed."""
    x, grid = b.activation(call["input"]), b.activation(call["grid"])
    order = to_channels_last(4)
    n, c, h, w = call.result.shape
    datatype, encoding = b.result_type(call)
    made = b.emit(
        "GridSample",
        [b.stored(x, order), b.dense(grid)],
        (n, h, w, c),
        datatype,
        encoding,
        align_corners=Scalar(DataType.BOOL, bool(call["align_corners"])),
        mode=Scalar(DataType.UINT32, call["interpolation_mode"]),
        padding_mode=Scalar(DataType.UINT32, call["padding_mode"]),
    )
    return Value(made, order)


def sampling_modes(call: Call) -> str | None:
    """Bilinear or nearest."""
    mode = call["interpolation_mode"]
    return None if mode < 2 else f"interpolation_mode = {mode}: QNN samples bilinearly, or the nearest"


def plain_factors(call: Call) -> str | None:
    """The factors are those of the sizes."""
    factors = call["scale_factors"]
    if factors is None:
        return None
    source, result = call["input"].shape[2:], call.result.shape[2:]
    exact = all(old * factor == new for old, factor, new in zip(source, factors, result, strict=True))
    return None if exact else f"scale_factors = {list(factors)}: the sizes are not so many times as large"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("upsample_bilinear2d.vec", _resized("ResizeBilinear"), REAL, plain_factors, keep=True, fixed=True),
    row(
        "upsample_nearest2d.vec",
        _resized("ResizeNearestNeighbor"),
        REAL,
        plain_factors,
        nearest_pixels(),
        keep=True,
        fixed=True,
    ),
    row("upsample_bicubic2d.vec", _cubic, REAL, plain_factors, keep=True),
    row("grid_sampler_2d.default", _sampled, REAL, sampling_modes, keep=True),
)
