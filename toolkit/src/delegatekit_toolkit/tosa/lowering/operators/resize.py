"""Upsampling of images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.constraints import nearest_pixels
from delegatekit_toolkit.support import Constraint, row
from delegatekit_toolkit.tosa import DType, Resize, ResizeMode, Sub, Tensor, Tile

from ..device import Device
from ..filters import Filters, convolved
from ..limits import MAX_RESIZE_STEPS, MAX_SHRINKING, RESIZES
from ..program import ProgramBuilder
from ..values import CHANNELS_LAST, Result, Scale, Value
from ..windows import Windows
from .common import Rows

# -- constraints -----------------------------------------------------------------------------------------------------


def resizes(mode: str, device: Device) -> Constraint:
    """The constraint of resizing: `mode` is "nearest" or "bilinear"."""

    def check(call: Call) -> str | None:
        corners = bool(call.get("align_corners"))
        lacks = device.lacks(RESIZES[mode])
        source, made = call["input"].shape, call.result.shape
        return resize_obstacle(source, made, mode, corners, call["scale_factors"], lacks)

    narrow = {"nearest": "Larger by whole factors.", "bilinear": "2, 4 or 8 times as large; corners are not aligned."}
    check.__doc__ = narrow[mode] if device.lacks("") else "To a 16th at least; steps of at least a 1024th of a pixel."
    return check


def resize_obstacle(
    before: Sequence[int],
    after: Sequence[int],
    mode: str,
    corners: bool,
    factors: Sequence[float] | None,
    lacks: str | None = "nothing else is possible",
) -> str | None:
    """(N, C, H, W), made larger by whole factors; bilinear by 2, 4 or 8, the same along both axes.

    With `lacks`, the reason for refusing what narrow devices lack, None: any sizes, with corners aligned or not.
    """
    sizes = list(zip(before[2:], after[2:], strict=True))
    ratios = [new / old for old, new in sizes]
    if factors and list(factors) != ratios:
        return f"scale_factors {tuple(factors)} are not the ratio of the sizes"
    if mode == "nearest" and all(ratio.is_integer() for ratio in ratios):
        return None
    if mode == "bilinear" and not corners and len(set(ratios)) == 1 and ratios[0] in (2, 4, 8):
        return None
    if lacks is not None:
        return f"{lacks} (from {tuple(before[2:])} to {tuple(after[2:])}{', corners aligned' if corners else ''})"
    return next((reason for old, new in sizes if (reason := _step_obstacle(old, new, mode, corners))), None)


def resize_steps(old: int, new: int, mode: str, corners: bool) -> tuple[int, int, int, int]:
    """The parameters of TOSA's RESIZE from `old` to `new` pixels: numerator, denominator, offset and border."""
    if corners:
        up, down = new - 1, old - 1
        shared = math.gcd(up, down)
        up, down, offset = 2 * up // shared, 2 * down // shared, 0
    else:
        shared = math.gcd(new, old)
        up, down = 2 * new // shared, 2 * old // shared
        # Rounded to the nearest, half a pixel less gives the one before; between centers all are half a pixel off.
        offset = -up // 2 if mode == "nearest" else (down - up) // 2
    return up, down, offset, (new - 1) * down - (old - 1) * up + offset


def _step_obstacle(old: int, new: int, mode: str, corners: bool) -> str | None:
    if corners and 1 in (old, new):
        return f"from {old} to {new}: a single pixel cannot be aligned with two corners"
    up, down, _, _ = resize_steps(old, new, mode, corners)
    if up > MAX_RESIZE_STEPS or down >= MAX_SHRINKING * up:
        least = f"steps of a {MAX_RESIZE_STEPS // 2}th, and a {MAX_SHRINKING}th of the size, are the least"
        return f"from {old} to {new}: {least}"
    return None


# -- lowerings -------------------------------------------------------------------------------------------------------


def _nearest(b: ProgramBuilder, call: Call, result: Result) -> Value:
    operand = call["input"]
    x = b.stored(b.integers(operand), CHANNELS_LAST)
    sizes = call.result.shape[2:]
    if _is_plain(x, sizes) or b.device.narrow:
        made = _repeated(b, x, (sizes[0] // x.shape[1], sizes[1] // x.shape[2]))
    else:
        made = _between(b, x, sizes, ResizeMode.NEAREST, False, x.dtype)
    return Value(b.requantized(made, b.scale(operand), result), CHANNELS_LAST)


def _is_plain(x: Tensor, sizes: Sequence[int]) -> bool:
    """True if an image is made 2, 4 or 8 times as large."""
    factor = sizes[0] // x.shape[1]
    return factor in (2, 4, 8) and tuple(sizes) == (factor * x.shape[1], factor * x.shape[2])


def _between(
    b: ProgramBuilder, x: Tensor, sizes: Sequence[int], mode: ResizeMode, corners: bool, dtype: DType
) -> Tensor:
    """Any size. Bilinear, the result is scaled by the number of steps, of rows times of columns."""
    axes = zip(x.shape[1:3], sizes, strict=True)
    (up, down, top, bottom), (wide, narrow, left, right) = (
        resize_steps(old, new, mode.name.lower(), corners) for old, new in axes
    )
    operands = b.sizes((up, down, wide, narrow)), b.sizes((top, left)), b.sizes((bottom, right))
    return b.emit(Resize(mode), (x, *operands), (x.shape[0], *sizes, x.shape[3]), dtype, "resized")


def _resized(b: ProgramBuilder, x: Tensor, factor: int, mode: ResizeMode, dtype: DType, name: str) -> Tensor:
    """Between the centers of pixels: 2 * factor steps from one to the next, of which the result has every second."""
    shape = (x.shape[0], x.shape[1] * factor, x.shape[2] * factor, x.shape[3])
    scale = b.sizes((2 * factor, 2, 2 * factor, 2))
    offset, border = b.sizes((1 - factor, 1 - factor)), b.sizes((factor - 1, factor - 1))
    return b.emit(Resize(mode), (x, scale, offset, border), shape, dtype, name)


def _repeated(b: ProgramBuilder, x: Tensor, factors: tuple[int, int]) -> Tensor:
    """Each pixel repeated this many times along both axes.

    Narrow devices do it for one sample, and by two: a compiler in use fails at larger factors whose result is joined
    with others. Otherwise rows and columns are copied.
    """
    if not b.device.narrow:
        return _resized(b, x, factors[0], ResizeMode.NEAREST, x.dtype, "repeated")
    doublings = 0
    while not any(factor % (2 << doublings) for factor in factors):
        doublings += 1
    high, wide = (factor >> doublings for factor in factors)
    x = _copied(b, _doubled(b, x, doublings), 2, wide)
    return _copied(b, x, 1, high)


def _copied(b: ProgramBuilder, x: Tensor, axis: int, times: int) -> Tensor:
    """Each row (column) repeated this many times."""
    if times == 1:
        return x
    shape = [math.prod(x.shape[: axis + 1]), 1, math.prod(x.shape[axis + 1 :])]
    rows = b.reshaped(x, shape)
    made = b.emit(Tile(), (rows, b.sizes((1, times, 1))), (shape[0], times, shape[2]), x.dtype, "copied")
    return b.reshaped(made, (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]))


def _doubled(b: ProgramBuilder, x: Tensor, times: int) -> Tensor:
    """Each pixel twice along both axes, this many times."""
    if not times:
        return x
    sample, parts = (1, *x.shape[1:]), []
    for place in range(x.shape[0]):
        part = b.sliced(x, (place, 0, 0, 0), sample)
        for _ in range(times):
            part = _resized(b, part, 2, ResizeMode.NEAREST, x.dtype, "repeated")
        parts.append(part)
    return b.joined(parts, 0, "samples")


def _bilinear(b: ProgramBuilder, call: Call, result: Result) -> Value:
    operand, sizes = call["input"], call.result.shape[2:]
    x, before = b.stored(b.integers(operand), CHANNELS_LAST), b.scale(operand)
    corners = bool(call["align_corners"])
    if corners or not _is_plain(x, sizes):
        return Value(_interpolated(b, x, before, sizes, corners, result), CHANNELS_LAST)
    factor = sizes[0] // x.shape[1]
    if not b.device.narrow and before == result.scale and before.dtype == DType.INT8:
        made = _resized(b, x, factor, ResizeMode.BILINEAR, DType.INT32, "between")
        plain = b.rescaled(made, [1 / (2 * factor) ** 2], dtype=x.dtype)
        return Value(b.clamped(plain, result), CHANNELS_LAST)
    # The others have bilinear resizing between corners only, and to another scale it would be rounded twice. Repeated
    # pixels, averaged with a window of factor + 1 pixels of which the outer ones count half, are the same numbers.
    bordered = _bordered(b, _bordered(b, x, 1), 2)
    large = _repeated(b, bordered, (factor, factor))
    high, wide = x.shape[1] * factor, x.shape[2] * factor
    batch, channels = x.shape[0], x.shape[3]
    half = factor // 2
    inner = b.sliced(large, (0, half, half, 0), (batch, high + factor, wide + factor, channels))
    taps = np.array([1, *[2] * (factor - 1), 1])
    kernel = np.broadcast_to(np.outer(taps, taps), (channels, 1, factor + 1, factor + 1)).astype(np.int8)
    steps = np.full(channels, 1 / (2 * factor) ** 2)

    def finish(sums: Tensor, scales: Sequence[float]) -> Tensor:
        return b.stored_as(sums, scales, result)

    filters, windows = Filters(kernel, steps, groups=channels), Windows((factor + 1, factor + 1), (high, wide))
    return Value(convolved(b, inner, before, filters, windows, finish), CHANNELS_LAST)


def _interpolated(
    b: ProgramBuilder, x: Tensor, before: Scale, sizes: Sequence[int], corners: bool, result: Result
) -> Tensor:
    """Bilinear, of any size."""
    wide = DType.INT32 if x.dtype == DType.INT8 else DType.INT48
    sums = _between(b, x, sizes, ResizeMode.BILINEAR, corners, wide)
    ups = [resize_steps(old, new, "bilinear", corners)[0] for old, new in zip(x.shape[1:3], sizes, strict=True)]
    steps, after = ups[0] * ups[1], result.scale
    if before == after:
        return b.clamped(b.rescaled(sums, [1 / steps], dtype=x.dtype), result)
    if before.zero_point:
        zero = b.single(before.zero_point * steps, sums.shape)
        sums = b.emit(Sub(), (sums, zero), sums.shape, DType.INT32, "centred")
    return b.stored_as(sums, [before.scale / steps], result)


def _bordered(b: ProgramBuilder, x: Tensor, axis: int) -> Tensor:
    """The first and the last row (column) twice."""
    edge = [*x.shape]
    edge[axis] = 1
    first = b.sliced(x, (0, 0, 0, 0), edge)
    last = b.sliced(x, [x.shape[axis] - 1 if place == axis else 0 for place in range(4)], edge)
    return b.joined((first, x, last), axis, "bordered")


def rows(device: Device) -> Rows:
    """The rows for a device."""
    return (
        row("upsample_nearest2d.vec", _nearest, nearest_pixels(), resizes("nearest", device), keep=True),
        row("upsample_bilinear2d.vec", _bilinear, resizes("bilinear", device), keep=True),
    )
