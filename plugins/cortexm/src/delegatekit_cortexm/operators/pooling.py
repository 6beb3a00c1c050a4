"""Pools over windows of images."""

from __future__ import annotations

from collections.abc import Sequence

from delegatekit_api import Call
from delegatekit_api.operators import RuntimeTensor
from delegatekit_toolkit.arguments import per_axis
from delegatekit_toolkit.support import row

from ..ir.images import image_of, of_rank, padded
from ..ir.numbers import Scale, fixed_point
from ..ir.program import ProgramBuilder
from .common import Rows


def _axes(call: Call) -> int:
    return 1 if "1d" in call.operator else 2


# -- constraints -----------------------------------------------------------------------------------------------------


def with_batch(call: Call) -> str | None:
    """The input has a batch axis."""
    return None if call["self"].rank == _axes(call) + 2 else "its input has no batch axis"


def whole_windows(call: Call) -> str | None:
    """Sizes are not rounded up (ceil_mode), and there is no dilation."""
    if call["ceil_mode"]:
        return "its sizes are rounded up (ceil_mode)"
    dilation = per_axis(call.get("dilation", 1), _axes(call), 1)
    return None if max(dilation) == 1 else f"windows with dilation {tuple(dilation)}"


def plain_divisor(call: Call) -> str | None:
    """No divisor of its own."""
    divisor = call.get("divisor_override")
    return None if divisor is None else f"divides by {divisor}"


def over_planes(call: Call) -> str | None:
    """A mean over the height and width of images (N, C, H, W)."""
    rank, dims = call["self"].rank, call["dim"]
    if rank != 4 or dims is None or sorted(dim % 4 for dim in dims) != [2, 3]:
        return f"a mean over axes {dims} of {rank}: that over height and width of images is taken"
    return None


# -- lowerings -------------------------------------------------------------------------------------------------------


def _setting(call: Call, name: str, one_row: int) -> tuple[int, int]:
    """A setting along height and width."""
    given = call[name]
    if name == "stride" and not given:
        given = call["kernel_size"]
    found = per_axis(given, _axes(call), one_row)
    return (found[0], found[1]) if _axes(call) == 2 else (one_row, found[0])


def _whole(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape) if len(shape) == 4 else (*shape[:2], 1, shape[2])


def _maximum(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    before, shape = b.scale(call["self"]), call.result.shape
    kept = before.like(result)
    bounds = (result.low, result.high) if kept else (-128, 127)
    x = image_of(b, b.integers(call["self"]))
    made = b.call(
        "quantized_max_pool2d",
        x,
        *(_setting(call, "kernel_size", 1), _setting(call, "stride", 1), _setting(call, "padding", 0), (1, 1), False),
        *(before.zero_point, before.zero_point, *bounds),
        shape=_whole(shape),
        like=x,
    )
    return of_rank(b, made if kept else b.rescaled(made, before, result), shape)


def _average(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    x, before = image_of(b, b.integers(call["self"])), b.scale(call["self"])
    padding = _setting(call, "padding", 0)
    if any(padding) and call["count_include_pad"]:
        x, padding = padded(b, x, [0, 0, *padding], [0, 0, *padding], before.zero_point), (0, 0)
    made = averaged(
        b, x, before, _setting(call, "kernel_size", 1), _setting(call, "stride", 1), padding, _whole(call.result.shape)
    )
    return of_rank(b, b.rescaled(made, before, result), call.result.shape)


def averaged(
    b: ProgramBuilder,
    x: RuntimeTensor,
    before: Scale,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    shape: Sequence[int],
) -> RuntimeTensor:
    """Averages over windows of an image, in its own scale."""
    scratch = b.calls.scratch(b.sizes.average(shape[3], shape[1]))
    settings = (x, kernel, stride, padding, False, before.zero_point, *fixed_point(before.scale), scratch)
    return b.call("quantized_avg_pool2d", *settings, shape=shape, like=x)


def _mean(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    x, before = b.channels_last(b.integers(call["self"])), b.scale(call["self"])
    batch, channels, high, wide = x.spec.shape
    made = averaged(b, x, before, (high, wide), (1, 1), (0, 0), (batch, channels, 1, 1))
    made = b.rescaled(made, before, result)
    return made if call.result.rank == 4 else b.reshaped(made, call.result.shape)


def even_windows(call: Call) -> str | None:
    """The result's sizes divide the input's, which has a batch axis."""
    if call["self"].rank != _axes(call) + 2:
        return "its input has no batch axis"
    before, after = call["self"].shape[2:], call.result.shape[2:]
    uneven = any(old % new for old, new in zip(before, after, strict=True))
    return f"{before} is not a multiple of {after}" if uneven else None


def _adaptive(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    x, before = image_of(b, b.integers(call["self"])), b.scale(call["self"])
    shape = _whole(call.result.shape)
    window = (x.spec.shape[2] // shape[2], x.spec.shape[3] // shape[3])
    made = averaged(b, x, before, window, window, (0, 0), shape)
    return of_rank(b, b.rescaled(made, before, result), call.result.shape)


ROWS: Rows = (
    row("max_pool1d.default max_pool2d.default", _maximum, with_batch, whole_windows, keep=True),
    row("avg_pool1d.default", _average, with_batch, whole_windows, keep=True),
    row("avg_pool2d.default", _average, with_batch, whole_windows, plain_divisor),
    row("adaptive_avg_pool1d.default", _adaptive, even_windows, keep=True),
    row("_adaptive_avg_pool2d.default", _adaptive, even_windows),
    row("mean.dim", _mean, over_planes),
)
