"""Convolutions over one, two or three axes, with the channels last."""

from __future__ import annotations

from typing import Any, Final

from delegatekit_api import Call
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Value
from ..ir.sizes import size_of
from .common import REAL, add, concatenated, fixed, sliced, tensor, transposed

_KINDS: Final = {
    (False, 1): schema.Conv1DNode,
    (False, 2): schema.Conv2DNode,
    (False, 3): schema.Conv3DNode,
    (True, 1): schema.ConvTranspose1DNode,
    (True, 2): schema.ConvTranspose2DNode,
    (True, 3): schema.ConvTranspose3DNode,
}


def _convolution(b: GraphBuilder, call: Call) -> Value:
    axes, groups = call["weight"].rank - 2, call["groups"]
    last = [0, *range(2, axes + 2), 1]
    x, weight = transposed(b, tensor(b, call, "input"), last), _weight(b, call)
    # MLX has no groups over three axes.
    parts = groups if axes == 3 else 1
    made = _joined(
        b, [_one(b, call, *part) for part in zip(_split(b, x, parts, -1), _split(b, weight, parts, 0), strict=True)]
    )
    if call["bias"] is not None:
        made = add(b, made, b.value(call["bias"]))
    return transposed(b, made, [0, axes + 1, *range(1, axes + 1)])


def _one(b: GraphBuilder, call: Call, x: Value, weight: Value) -> Value:
    axes = call["weight"].rank - 2
    names = [f"_{letter}" for letter in "dhw"[3 - axes :]] if axes > 1 else [""]
    settings: dict[str, Any] = {"groups": 1 if axes == 3 else call["groups"]}
    for name in ("stride", "padding", "dilation", *["output_padding"] * call["transposed"]):
        settings |= {name + axis: number for axis, number in zip(names, call[name], strict=True)}
    batch, _, *sizes = call.result.shape
    if call["transposed"]:
        return _cut(b, call, x, weight, names, settings)
    return b.op(_KINDS[call["transposed"], axes], (batch, *sizes, weight.shape[0]), x.dtype, x=x, w=weight, **settings)


def _cut(b: GraphBuilder, call: Call, x: Value, weight: Value, names: list[str], settings: dict[str, Any]) -> Value:
    """A transposed convolution. MLX pads as far as the window reaches: more is cut off after it."""
    batch, _, *sizes = call.result.shape
    reach = [(size - 1) * gap for size, gap in zip(call["weight"].shape[2:], call["dilation"], strict=True)]
    more = [max(pad - most, 0) for pad, most in zip(call["padding"], reach, strict=True)]
    settings |= {f"padding{axis}": pad - rest for axis, pad, rest in zip(names, call["padding"], more, strict=True)}
    wide = [size_of(size) + 2 * rest for size, rest in zip(sizes, more, strict=True)]
    made = b.op(_KINDS[True, len(reach)], (batch, *wide, weight.shape[0]), x.dtype, x=x, w=weight, **settings)
    for axis, (size, rest) in enumerate(zip(sizes, more, strict=True)):
        made = sliced(b, made, 1 + axis, rest, rest + size_of(size))
    return made


def _weight(b: GraphBuilder, call: Call) -> Value:
    """The weight as MLX wants it: outputs, the window's axes, the inputs of a group."""
    weight, groups = call["weight"], call["groups"]
    rank = weight.rank
    if not call["transposed"]:
        order, known = [0, *range(2, rank), 1], weight.constant
        return transposed(b, b.value(weight), order) if known is None else b.once(known, lambda: known.permute(order))
    inputs, outputs, *window = weight.shape
    parts, order = (groups, inputs // groups, outputs, *window), [0, 2, *range(3, rank + 1), 1]
    shape = (groups * outputs, *window, inputs // groups)
    if (known := weight.constant) is not None:
        return b.once(known, lambda: known.reshape(parts).permute(order).reshape(shape), groups)
    return b.reshape(transposed(b, b.reshape(b.value(weight), parts), order), shape)


def _split(b: GraphBuilder, x: Value, parts: int, axis: int) -> list[Value]:
    along = axis % x.rank
    size = x.shape[along]
    assert isinstance(size, int)
    step = size // parts
    return [sliced(b, x, along, start, start + step) for start in range(0, size, step)]


def _joined(b: GraphBuilder, parts: list[Value]) -> Value:
    return concatenated(b, parts, parts[0].rank - 1)


def one_to_three_axes(call: Call) -> str | None:
    """Over one, two or three axes, of a batch."""
    axes = call["weight"].rank - 2
    if axes not in (1, 2, 3) or call["input"].rank != axes + 2:
        return f"a convolution over {axes} axes of {call['input'].rank}"
    return None


def fixed_weight(call: Call) -> str | None:
    """The weight's sizes do not change."""
    return None if fixed(call["weight"].shape) else "the weight's sizes change from call to call"


ROWS: Final[tuple[Row[Lower], ...]] = (row("convolution.default", _convolution, REAL, one_to_three_axes, fixed_weight),)
