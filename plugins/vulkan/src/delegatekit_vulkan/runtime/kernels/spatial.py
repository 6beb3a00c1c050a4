"""Operators on images other than convolutions and poolings: resizing, sampling at positions, batch norm."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ...shaders.numbers import Resize
from ..calls import Kernel, Reader
from ..memory import Value
from ..tape import Tape

#: Rows and columns up to which float32 is exact.
_MOST: Final = 1 << 24


def _nearest(tape: Tape, call: Reader) -> None:
    _resize(tape, call, Resize.NEAREST, factors_at=2)


def _bilinear(tape: Tape, call: Reader) -> None:
    _resize(tape, call, Resize.BILINEAR_CORNERS if call.truth(2) else Resize.BILINEAR, factors_at=3)


def _resize(tape: Tape, call: Reader, kind: Resize, factors_at: int) -> None:
    x = _image(call, 0)
    factors = _factors(call, factors_at)
    if not call.is_none(1):
        if factors is not None:
            raise call.error("has a size and factors")
        height, width = call.integers(1, 2)
    elif factors is not None:
        height, width = (int(size * factor) for size, factor in zip(x.shape[2:], factors, strict=True))
    else:
        raise call.error("has neither a size nor factors")
    if not (0 < height < _MOST and 0 < width < _MOST):
        raise call.error(f"has a result of the size {(height, width)}")
    target = tape.result(call.result, (*x.shape[:2], height, width))
    _check_floats(call, x, target)
    scales = [
        _scale(kind, old, new, None if factors is None else factors[axis])
        for axis, (old, new) in enumerate(zip(x.shape[2:], (height, width), strict=True))
    ]
    push = (target.count, 0, *x.shape[2:], height, width, *scales)
    tape.dispatch("resize", (x, target), push, (target.is_half, kind), items=target.count)


def _factors(call: Reader, position: int) -> tuple[float, float] | None:
    raw = call.raw(position)
    if raw is None or raw == ():
        return None
    if not isinstance(raw, tuple) or len(raw) != 2 or not all(isinstance(item, int | float) for item in raw):
        raise call.error(f"argument {position} is not two factors")
    height, width = (float(item) for item in raw)  # type: ignore[arg-type]
    if not (0 < height < _MOST and 0 < width < _MOST):
        raise call.error(f"has the factors {(height, width)}")
    return height, width


def _scale(kind: Resize, old: int, new: int, factor: float | None) -> float:
    """Pixels of the input for one of the result, in single precision as PyTorch computes it."""
    if kind == Resize.BILINEAR_CORNERS:
        return float(np.float32(old - 1) / np.float32(new - 1)) if new > 1 else 0.0
    if factor is not None:
        return float(np.float32(1.0 / factor))
    return float(np.float32(old) / np.float32(new))


def _grid_sample(tape: Tape, call: Reader) -> None:
    x, grid = _image(call, 0), call.tensor(1, 4)
    mode = (call.integer(2), call.integer(3), call.truth(4))
    if mode != (0, 1, True):
        raise call.error(f"samples in the mode {mode}: bilinear, with the border outside, by corners is taken")
    if grid.shape[0] != x.shape[0] or grid.shape[3] != 2:
        raise call.error(f"samples {x.shape} at {grid.shape}")
    target = tape.result(call.result, (*x.shape[:2], *grid.shape[1:3]))
    _check_floats(call, x, grid, target)
    push = (target.count, x.shape[1], *x.shape[2:], math.prod(grid.shape[1:3]))
    tape.dispatch("grid_sample", (x, grid, target), push, (target.is_half,), items=target.count)


def _batch_norm(tape: Tape, call: Reader) -> None:
    """The first of three results; the others are empty."""
    x = call.tensor(0)
    if x.rank < 2 or x.count >= 1 << 31:
        raise call.error(f"normalizes {x.shape}")
    weight, bias = call.optional(1, 1), call.optional(2, 1)
    mean, variance = call.tensor(3, 1), call.tensor(4, 1)
    given = [value for value in (weight, bias, mean, variance) if value is not None]
    if any(value.shape != (x.shape[1],) for value in given):
        raise call.error(f"normalizes {x.shape} with {given[0].shape}")
    epsilon = call.number(6)
    target = tape.result(call.results[0], x.shape)
    _check_floats(call, x, target, *given)
    buffers = (x, weight or mean, bias or mean, mean, variance, target)
    push = (target.count, x.shape[1], math.prod(x.shape[2:]), epsilon)
    flags = (target.is_half, weight is not None, bias is not None)
    tape.dispatch("batch_norm", buffers, push, flags, items=target.count)


def _image(call: Reader, position: int) -> Value:
    """A tensor (images, channels, height, width) with pixels."""
    x = call.tensor(position, 4)
    if min(x.shape[2:]) < 1 or max(x.shape[2:]) >= _MOST or x.count >= 1 << 31:
        raise call.error(f"has an image of the size {x.shape}")
    return x


def _check_floats(call: Reader, *values: Value) -> None:
    if not all(value.is_float for value in values):
        raise call.error("computes with integers")


KERNELS: Final[dict[str, Kernel]] = {
    "aten.upsample_nearest2d.vec": _nearest,
    "aten.upsample_bilinear2d.vec": _bilinear,
    "aten.grid_sampler_2d.default": _grid_sample,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
}
