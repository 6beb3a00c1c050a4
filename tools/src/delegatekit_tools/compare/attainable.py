"""The accuracy that nodes can attain which are computed together, and the bounds of what they read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from delegatekit.edge import EdgeMethod
from delegatekit_api.nodes import argument
from delegatekit_toolkit.accuracy import ROUNDOFF, Accuracy, inner_roundings, longest_way, roundings

from .referee import Values, rounds_of
from .units import is_conversion, is_quantize


def accuracy_of(edge: EdgeMethod, nodes: Sequence[Node], values: Values) -> Accuracy:
    """The accuracy of nodes that are computed together; `values` give the trip counts of loops among them."""
    rounding = longest_way(nodes, partial(_roundings, edge, values))
    quantizes = [node for node in nodes if is_quantize(node)]
    if not quantizes:
        return Accuracy(max(1, rounding), exact=rounding == 0, ill_conditioned=True)
    depth = longest_way(nodes, _integer_roundings)
    return Accuracy(max(1, depth), ill_conditioned=True, steps=max(1, depth), step=max(map(_step, quantizes)))


def precision_of(nodes: Sequence[Node], precision: str) -> str:
    """The coarsest precision that nodes round to which are computed in one: of mixed programs, that of a dtype."""
    dtypes = {value.dtype for node in nodes if isinstance(value := node.meta.get("val"), torch.Tensor)}
    names = [str(dtype).removeprefix("torch.") for dtype in dtypes if dtype in (torch.float16, torch.bfloat16)]
    return max((precision, *names), key=ROUNDOFF.__getitem__)


def before(item: Node, nodes: Sequence[Node]) -> list[Node]:
    """Those of the nodes that a value is computed by, in order."""
    inside, wanted = set(nodes), {item}
    for node in reversed(nodes):
        if node in wanted:
            wanted.update(source for source in node.all_input_nodes if source in inside)
    return [node for node in nodes if node in wanted]


def _roundings(edge: EdgeMethod, values: Values, node: Node) -> int:
    return roundings(node) or _roundings_inside(edge, node, values)


def _roundings_inside(edge: EdgeMethod, node: Node, values: Values) -> int:
    """Roundings inside a call of control flow, in all its iterations."""
    regions = edge.regions.get(node, ())
    if not regions:
        return 0
    inside = [longest_way(region.graph.nodes, partial(_roundings, region, values)) for region in regions]
    return max(inside) * max(1, rounds_of(edge, node, values))


def _integer_roundings(node: Node) -> int:
    """Roundings to integers: the quantize itself, and those between the parts of an operator that has several."""
    if is_conversion(node):
        return int(is_quantize(node))
    return max(0, inner_roundings(node) - 1)


def _step(quantize: Node) -> float:
    """The step of a quantization relative to its range."""
    least, most = argument(quantize, "quant_min"), argument(quantize, "quant_max")
    if not isinstance(least, int | float) or not isinstance(most, int | float):
        limits = torch.iinfo(quantize.meta["val"].dtype)
        least, most = limits.min, limits.max
    return 1.0 / float(most - least)


def held(value: Any, precision: str) -> Any:
    """A value as represented by a program that computes in a precision."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32 or precision == "float64":
        return value
    return value.to(getattr(torch, precision)).float()
