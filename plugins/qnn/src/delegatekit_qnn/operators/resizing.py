"""Images in other sizes."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.layout import to_channels_last
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar
from ..ir.types import DataType
from ..ir.values import Value
from .common import REAL
from .program import Lower, ProgramBuilder


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
    row("upsample_nearest2d.vec", _resized("ResizeNearestNeighbor"), REAL, plain_factors, keep=True, fixed=True),
)
