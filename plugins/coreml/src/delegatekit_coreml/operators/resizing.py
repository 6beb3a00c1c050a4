"""Operators that give images another size: resizing, pixel shuffle."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.constraints import rank
from delegatekit_toolkit.expressions import is_fixed
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var
from ..targets import IOS16
from .common import REAL, tensor
from .program import Lower, ProgramBuilder


def _ratios(call: Call) -> list[float]:
    """By what each axis grows; where sizes change, it is what the program says."""
    before, after = call["input"].shape[2:], call.result.shape[2:]
    factors = call["scale_factors"] or (math.nan,) * len(before)
    return [
        new / old if is_fixed(old) and is_fixed(new) else factor
        for old, new, factor in zip(before, after, factors, strict=True)
    ]


def known_factors(call: Call) -> str | None:
    """Whole factors where sizes change."""
    sizes = zip(call["input"].shape[2:], call.result.shape[2:], _ratios(call), strict=True)
    if all((is_fixed(old) and is_fixed(new)) or ratio.is_integer() for old, new, ratio in sizes):
        return None
    return "sizes that change from call to call, and no whole scale_factors"


def exact_ratio(call: Call) -> str | None:
    """Scale factors are exactly the ratio of the sizes, by which MIL computes."""
    factors = call["scale_factors"]
    if not factors or call["output_size"] is not None or (call.has("align_corners") and call["align_corners"]):
        return None
    if list(factors) == _ratios(call):
        return None
    return f"scale_factors {list(factors)} are not the ratio of the sizes"


def whole_ratio(call: Call) -> str | None:
    """The result's sizes are multiples of the input's."""
    if all(ratio.is_integer() for ratio in _ratios(call)):
        return None
    return f"{call['input'].shape[2:]} to {call.result.shape[2:]}: multiples are taken"


def exact_sizes(call: Call) -> str | None:
    """MIL computes the result's size from a factor of float32 as PyTorch has it."""
    before, after = call["input"].shape[2:], call.result.shape[2:]
    for old, new, ratio in zip(before, after, _ratios(call), strict=True):
        if not is_fixed(old):
            continue
        if int(np.floor(np.float32(ratio) * old)) != new or int(ratio * old) != new:
            return f"{old} times {ratio} is not {new} in float32"
    return None


def several_pixels(call: Call) -> str | None:
    """With align_corners, the result has more than one row and column: MIL would divide by 0."""
    after = call.result.shape[2:]
    if not call["align_corners"] or all(is_fixed(size) and size != 1 for size in after):
        return None
    return f"a result of {after} with align_corners"


def _factors(call: Call) -> dict[str, Any]:
    """A whole factor as an integer: it is exact."""
    return {
        f"scale_factor_{name}": int(ratio) if all(item.is_integer() for item in _ratios(call)) else np.float32(ratio)
        for name, ratio in zip(("height", "width"), _ratios(call), strict=True)
    }


def _nearest(b: ProgramBuilder, call: Call) -> Var:
    return b.call("upsample_nearest_neighbor", x=tensor(b, call, "input"), **_factors(call))


def _bilinear(b: ProgramBuilder, call: Call) -> Var:
    corners = bool(call["align_corners"])
    return b.call("upsample_bilinear", x=tensor(b, call, "input"), align_corners=corners, **_factors(call))


def _pixels(kind: str, name: str, number: type[np.integer[Any]]) -> Lower:
    argument = "upscale_factor" if kind == "pixel_shuffle" else "downscale_factor"

    def lower(b: ProgramBuilder, call: Call) -> Var:
        return b.call(kind, x=tensor(b, call), **{argument: number(call[name])})

    return lower


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("upsample_nearest2d.vec", _nearest, REAL, known_factors, exact_ratio, whole_ratio, keep=True),
    row("upsample_bilinear2d.vec", _bilinear, REAL, known_factors, exact_ratio, exact_sizes, several_pixels, keep=True),
    row(
        "pixel_shuffle.default", _pixels("pixel_shuffle", "upscale_factor", np.int32), rank("self", 4), REAL, keep=True
    ),
    row(
        "pixel_unshuffle.default",
        _pixels("pixel_unshuffle", "downscale_factor", np.uint32),
        rank("self", 4),
        REAL,
        keep=True,
        static_only=True,
        since=IOS16,
    ),
)
