"""Calibrated ranges that integers do not serve: the layers of such values stay in float."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule, Node

from .graph import short_name
from .patterns import Layer

#: How far numbers of eight bits for a softmax may reach: in larger steps than 1, its results change by a factor of e.
#: Of more bits, half are for smaller steps.
_REACH = 255


def unbounded_values(prepared: GraphModule) -> list[Node]:
    """The values of a graph in which an observer has seen infinities or NaNs."""
    return [value for value, observer in _observed(prepared) if _is_unbounded(observer)]


def unfit_layers(prepared: GraphModule, layers: Sequence[Layer]) -> dict[str, str]:
    """The reasons why layers are to stay in float, by the names of their first nodes.

    One of their operands, weights or results has infinities or NaNs, or reaches so far that the steps between integers
    are too wide for the softmax that reads it: a mask is added to it, in most cases.
    """
    reasons: dict[int, str] = {}
    observed = _observed(prepared)
    for value, observer in observed:
        if _is_unbounded(observer):
            reasons[id(observer)] = "it has infinities or NaNs, which no integers stand for"
        elif any(short_name(reader) in ("softmax", "_softmax") for user in value.users for reader in user.users):
            low, high = float(observer.min_val.min()), float(observer.max_val.max())
            if high - low > math.sqrt(_REACH * (observer.quant_max - observer.quant_min)):
                reasons[id(observer)] = f"its numbers reach from {low:.3g} to {high:.3g}, too far for a softmax's steps"
    told = {value.name: reasons[id(item)] for value, item in observed if id(item) in reasons}
    found: dict[str, str] = {}
    for layer in layers:
        values = [*layer.inputs, *layer.outputs, *filter(None, (layer.weight,))]
        reason = next((told[value.name] for value in values if value.name in told), None)
        if reason is not None:
            found[layer.anchor.name] = reason
    return found


def _observed(prepared: GraphModule) -> list[tuple[Node, Any]]:
    """The values of a graph that are observed, each with its observer; values in one range share theirs."""
    found = []
    for node in prepared.graph.nodes:
        if node.op == "call_module":
            observer = prepared.get_submodule(str(node.target))
            # Of a module that rounds in training, the observer is within.
            observer = getattr(observer, "activation_post_process", observer)
            if hasattr(observer, "min_val"):
                found.append((node.args[0], observer))
    return found


def _is_unbounded(observer: Any) -> bool:
    """True if float32 has no number for the width of a range; without numbers it is negative infinity."""
    width = observer.max_val - observer.min_val
    return bool(((width == math.inf) | width.isnan()).any())
