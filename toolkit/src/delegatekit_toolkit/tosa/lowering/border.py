"""The program's border: quantization of its numbers to the NPU's integers and back, on the CPU."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call

_COPY: Final = "aten._to_copy.default"
#: The steps of a quantize before the conversion, as the core writes them, and of a dequantize after it; a zero point of
#: 0 needs no sum.
_QUANTIZE: Final = ("aten.mul.Scalar", "aten.round.default", "aten.add.Scalar", "aten.clamp.default", _COPY)
_DEQUANTIZE: Final = (_COPY, "aten.sub.Scalar", "aten.mul.Scalar")
_LEFT_OUT: Final = ("aten.add.Scalar", "aten.sub.Scalar")


def border_reason(call: Call) -> str | None:
    """The call's role at the border, or None if it is a step of neither conversion."""
    if _leads(call, _QUANTIZE, forward=True):
        return "the program's border: its numbers are quantized outside the delegate"
    if _leads(call, _DEQUANTIZE[::-1], forward=False):
        return "the program's border: integers are dequantized outside the delegate"
    return None


def _leads(call: Call, steps: tuple[str, ...], *, forward: bool) -> bool:
    """True if the call is one of the steps, and all later ones lead to the conversion from or to integers."""
    if call.operator not in steps:
        return False
    for step in steps[steps.index(call.operator) :]:
        if call.operator != step:
            if step in _LEFT_OUT:
                continue
            return False
        if step == _COPY:
            return _converts(call, forward=forward)
        near = list(call.node.users) if forward else call.node.all_input_nodes
        if len(near) != 1 or near[0].op != "call_function":
            return False
        call = Call(near[0], call.program)
    return False


def _converts(call: Call, *, forward: bool) -> bool:
    pair = call["self"].dtype, call.result.dtype
    outside, inside = pair if forward else pair[::-1]
    return outside.is_floating_point and not inside.is_floating_point
