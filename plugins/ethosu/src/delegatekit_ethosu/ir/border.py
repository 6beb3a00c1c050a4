"""The program's border: where its numbers become the NPU's integers, and integers numbers again, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delegatekit_api import operator_name

if TYPE_CHECKING:
    from torch.fx import Node

_COPY: Final = "aten._to_copy.default"
#: The steps of a quantize in front of the conversion, as the core writes them, and of a dequantize behind it; a zero
#: point of 0 needs no sum.
_QUANTIZE: Final = ("aten.mul.Scalar", "aten.round.default", "aten.add.Scalar", "aten.clamp.default", _COPY)
_DEQUANTIZE: Final = (_COPY, "aten.sub.Scalar", "aten.mul.Scalar")
_LEFT_OUT: Final = ("aten.add.Scalar", "aten.sub.Scalar")


def border_reason(node: Node) -> str | None:
    """What the node does at the border, or None for one that is a step of neither."""
    if _leads(node, _QUANTIZE, forward=True):
        return "the program's numbers become integers outside"
    if _leads(node, _DEQUANTIZE[::-1], forward=False):
        return "integers become the program's numbers outside"
    return None


def _leads(node: Node, steps: tuple[str, ...], *, forward: bool) -> bool:
    """Whether the node is one of the steps, and all later ones come up to the conversion from or to integers."""
    name = operator_name(node)
    if name not in steps:
        return False
    for step in steps[steps.index(name) :]:
        if operator_name(node) != step:
            if step in _LEFT_OUT:
                continue
            return False
        if step == _COPY:
            return _converts(node, forward=forward)
        near = list(node.users) if forward else node.all_input_nodes
        if len(near) != 1:
            return False
        node = near[0]
    return False


def _converts(node: Node, *, forward: bool) -> bool:
    outside, inside = (node.args[0], node) if forward else (node, node.args[0])
    floating = outside.meta["val"].dtype.is_floating_point  # type: ignore[union-attr]
    return floating and not inside.meta["val"].dtype.is_floating_point  # type: ignore[union-attr]
