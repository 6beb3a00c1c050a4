"""Images of another size."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.constraints import nearest_pixels
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import Resize, ResizeMode
from delegatekit_toolkit.tosa.lowering.operators.resize import resize_steps

from ..ir.builder import Lower, Value, VgfBuilder
from ..ir.limits import RESIZED, SCALE, SCALE_NUMBERS
from .common import REAL, tensor
from .windows import image_of, result_of

_INFINITIES: Final = "an infinite pixel makes its neighbors NaN, for it counts there with a share of 0"


def _steps(before: int, after: int, mode: str, *, corners: bool) -> tuple[int, int, int, int]:
    """Numerator and denominator of the scale, offset and border: pixel i of the result is at (i d + offset) / n."""
    if not corners or 1 not in (before, after):
        return resize_steps(before, after, mode, corners)
    # The first pixel: alone, or for all of the result.
    up = after if before == 1 else 1
    return up, 1, 0, after - 1 - (before - 1) * up


def _all_steps(call: Call) -> list[tuple[int, int, int, int]]:
    corners = call.has("align_corners") and bool(call["align_corners"])
    mode = _mode(call).name.lower()
    pairs = zip(call["input"].shape[2:], call.result.shape[2:], strict=True)
    return [_steps(before, after, mode, corners=corners) for before, after in pairs]


def _mode(call: Call) -> ResizeMode:
    return ResizeMode.NEAREST if "nearest" in call.operator else ResizeMode.BILINEAR


def _resized(b: VgfBuilder, call: Call) -> Value:
    x = image_of(b, tensor(b, call, "input"), 2).tensor
    rows, columns = _all_steps(call)
    operands = (x, b.sizes((*rows[:2], *columns[:2])), b.sizes((rows[2], columns[2])), b.sizes((rows[3], columns[3])))
    shape = (x.shape[0], *call.result.shape[2:], x.shape[3])
    return result_of(b, b.emit(Resize(_mode(call)), operands, shape, x.dtype), call.result.shape)


def few_steps(call: Call) -> str | None:
    """Scale factors are exactly the ratio of the sizes; and numbers that TOSA has."""
    before, after = call["input"].shape[2:], call.result.shape[2:]
    if max(*before, *after) > RESIZED:
        return f"from {before} to {after}: TOSA resizes images of {RESIZED} rows and columns at most"
    factors = call["scale_factors"]
    corners = call.has("align_corners") and call["align_corners"]
    if factors and call["output_size"] is None and not corners:
        ratios = [new / old for old, new in zip(before, after, strict=True)]
        if list(factors) != ratios:
            return f"scale_factors {list(factors)} are not the ratio of the sizes"
    for up, down, offset, border in _all_steps(call):
        large = max(up, down) > SCALE_NUMBERS or up > SCALE * down or down >= 16 * up
        if large or not -up <= offset < 16 * up or not -16 * up <= border < up:
            return f"from {before} to {after}, whose factor has too large numbers"
    return None


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("upsample_nearest2d.vec", _resized, REAL, few_steps, nearest_pixels(), keep=True),
    row("upsample_bilinear2d.vec", _resized, REAL, few_steps, keep=True, special_values=_INFINITIES),
)
