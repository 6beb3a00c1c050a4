"""Convolutions over one, two or three axes."""

from __future__ import annotations

from typing import Any, Final

from delegatekit_api import Call
from delegatekit_toolkit.constraints import constant
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, numbers
from .common import REAL, tensor
from .compression import weight_of
from .program import Lower, ProgramBuilder


def _convolution(b: ProgramBuilder, call: Call) -> Var:
    arguments: dict[str, Any] = {
        "x": tensor(b, call, "input"),
        "weight": weight_of(b, call),
        "strides": numbers(call["stride"]),
        "pad_type": "custom",
        "pad": numbers([pad for pair in _pads(call) for pad in pair]),
        "dilations": numbers(call["dilation"]),
        "groups": numbers([call["groups"]])[0],
    }
    if call["bias"] is not None:
        arguments["bias"] = tensor(b, call, "bias")
    return b.call("conv_transpose" if call["transposed"] else "conv", **arguments)


def _pads(call: Call) -> list[tuple[int, int]]:
    """Before and after each axis: of a transposed convolution, what is cut off the result."""
    if not call["transposed"]:
        return [(pad, pad) for pad in call["padding"]]
    return [(pad, pad - more) for pad, more in zip(call["padding"], call["output_padding"], strict=True)]


def one_to_three_axes(call: Call) -> str | None:
    """Over one, two or three axes."""
    axes = call["weight"].rank - 2
    return None if axes in (1, 2, 3) else f"a convolution over {axes} axes"


def cut_padding(call: Call) -> str | None:
    """output_padding is not larger than padding."""
    if not call["transposed"] or all(after >= 0 for _, after in _pads(call)):
        return None
    return f"output_padding = {list(call['output_padding'])} is larger than padding = {list(call['padding'])}"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("convolution.default", _convolution, REAL, constant("weight", "bias"), one_to_three_axes, cut_padding),
)
