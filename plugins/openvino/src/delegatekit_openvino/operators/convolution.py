"""Convolutions over one, two or three axes."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from ..ir.sizes import is_fixed
from .common import REAL, add, tensor


def _convolution(b: ModelBuilder, call: Call) -> Value:
    x, weight = tensor(b, call, "input"), tensor(b, call, "weight")
    groups, pads = call["groups"], list(call["padding"])
    kind = "convolution_backprop_data" if call["transposed"] else "convolution"
    if groups > 1:
        kind = f"group_{kind}"
        out, *rest = weight.shape
        assert isinstance(out, int)
        weight = b.reshape(weight, (groups, out // groups, *rest))
    windows = {"strides": list(call["stride"]), "dilations": list(call["dilation"])}
    if call["transposed"]:
        windows["output_padding"] = list(call["output_padding"])
    made = b.op(kind, x, weight, pads_begin=pads, pads_end=pads, **windows)
    made = b.declare(made, call.result.shape)
    bias = call["bias"]
    if bias is None:
        return made
    return add(b, made, b.reshape(b.value(bias), (1, -1, *[1] * (x.rank - 2))))


def one_to_three_axes(call: Call) -> str | None:
    """Over one, two or three axes, of a batch."""
    axes = call["weight"].rank - 2
    if axes not in (1, 2, 3) or call["input"].rank != axes + 2:
        return f"a convolution over {axes} axes of {call['input'].rank}"
    return None


def inside_padding(call: Call) -> str | None:
    """The padding is smaller than the kernel's extent: beyond it OpenVINO crashes."""
    for size, gap, pad in zip(call["weight"].shape[2:], call["dilation"], call["padding"], strict=True):
        if pad > (extent := (size - 1) * gap):
            return f"padding = {pad} for a kernel of extent {extent + 1}"
    return None


def equal_dilations(call: Call) -> str | None:
    """Depth and height have one dilation where one channel becomes one: else OpenVINO reads beyond its input."""
    out, channels, *kernel = call["weight"].shape
    dilation = call["dilation"]
    if call["transposed"] or (out, channels, len(kernel)) != (1, 1, 3) or kernel[0] == 1 or dilation[0] == dilation[1]:
        return None
    return f"dilation = {list(dilation)} of one channel"


def fixed_weight(call: Call) -> str | None:
    """The weight's sizes do not change."""
    return None if all(map(is_fixed, call["weight"].shape)) else "the weight's sizes change from call to call"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("convolution.default", _convolution, REAL, one_to_three_axes, fixed_weight, inside_padding, equal_dilations),
)
