"""Operators that sample images at places that are computed."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of
from ..ir.types import DataType
from .common import REAL, tensor
from .program import Lower, ProgramBuilder

_SAMPLING: Final = ("bilinear", "nearest")
_BEYOND: Final = ("constant", "border", "reflection")


def sampling_modes(call: Call) -> str | None:
    """Bilinear or nearest."""
    mode = call["interpolation_mode"]
    return None if mode < len(_SAMPLING) else f"interpolation_mode = {mode}: MIL samples bilinearly, or the nearest"


def _sampled(b: ProgramBuilder, call: Call) -> Var:
    """Coordinates are float32: float16 has too few places. MIL calls a reflection at the edges of pixels symmetric."""
    x, corners = tensor(b, call, "input"), bool(call["align_corners"])
    beyond = _BEYOND[call["padding_mode"]]
    return b.call(
        "resample",
        x=x,
        coordinates=b.cast(tensor(b, call, "grid"), DataType.FLOAT32),
        sampling_mode=_SAMPLING[call["interpolation_mode"]],
        padding_mode="symmetric" if beyond == "reflection" and not corners else beyond,
        padding_value=b.number(0, datatype_of(x)),
        coordinates_mode="normalized_minus_one_to_one",
        align_corners=corners,
    )


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("grid_sampler_2d.default", _sampled, REAL, sampling_modes, keep=True, static_only=True),
)
