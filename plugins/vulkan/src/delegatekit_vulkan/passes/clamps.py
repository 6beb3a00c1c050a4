"""Lets convolutions clamp their own results."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from ..ir.graph import Argument, Graph, Node
from ..ir.stock import CLAMPED_CONVOLUTION, CONVOLUTION

_RELU: Final = "aten.relu.default"
_CLAMPS: Final = ("aten.hardtanh.default", "aten.clamp.default")

Bounds: TypeAlias = "tuple[float, float]"
NO_BOUNDS: Final = (-math.inf, math.inf)


def fold_clamps(graph: Graph) -> None:
    """Fold a clamp that is the only reader of a convolution into it."""
    producers, users = graph.producers(), graph.users()
    folded = set()
    for node in graph.nodes:
        bounds = bounds_of(node)
        convolution = producers.get(node.reads[0]) if bounds is not None and len(node.reads) == 1 else None
        if bounds is None or convolution is None or convolution.operator not in (CONVOLUTION, CLAMPED_CONVOLUTION):
            continue
        if convolution.result in graph.outputs or users[convolution.results[0]] != [node]:
            continue
        if convolution.operator == CLAMPED_CONVOLUTION:
            bounds = _both((_number(convolution.arguments[9]), _number(convolution.arguments[10])), bounds)
        convolution.operator = CLAMPED_CONVOLUTION
        convolution.arguments = [*convolution.arguments[:9], *bounds]
        convolution.result = node.result
        convolution.debug_handles = tuple(dict.fromkeys((*convolution.debug_handles, *node.debug_handles)))
        producers[convolution.results[0]] = convolution
        folded.add(node)
    graph.nodes = [node for node in graph.nodes if node not in folded]


def bounds_of(node: Node) -> Bounds | None:
    """The minimum and maximum of a clamp; None for other operators, and numbers that are computed."""
    if node.operator == _RELU:
        return 0.0, math.inf
    if node.operator not in _CLAMPS:
        return None
    low, high = node.arguments[1:3]
    if not all(item is None or isinstance(item, int | float) for item in (low, high)):
        return None
    found = (NO_BOUNDS[0] if low is None else _number(low), NO_BOUNDS[1] if high is None else _number(high))
    return None if any(map(math.isnan, found)) else found


def _number(argument: Argument) -> float:
    assert isinstance(argument, int | float)
    return float(argument)


def _both(first: Bounds, second: Bounds) -> Bounds:
    """One clamp after another."""
    low, high = second
    # If the upper bound is below the lower one, all results are the upper bound.
    least, greatest = (min(max(bound, low), high) for bound in first)
    return least, greatest
