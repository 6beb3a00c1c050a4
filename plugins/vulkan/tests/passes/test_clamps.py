"""A clamp that is the only reader of a convolution is folded into it."""

from __future__ import annotations

import math

import pytest
import torch

from delegatekit_vulkan.ir.graph import Argument, Graph, Node, Tensor
from delegatekit_vulkan.ir.types import DataType
from delegatekit_vulkan.passes.clamps import fold_clamps

FLOAT = DataType.FLOAT32


def tensor() -> Tensor:
    return Tensor((1, 3, 4, 4), FLOAT, FLOAT)


def convolution(x: Tensor) -> Node:
    weight = Tensor((3, 3, 1, 1), FLOAT, FLOAT, torch.randn(3, 3, 1, 1))
    settings: list[Argument] = [(1, 1), (0, 0), (1, 1), False, (0, 0), 1]
    return Node("aten.convolution.default", [x, weight, None, *settings], tensor(), (1,))


def clamp(name: str, x: Node, *bounds: float | None) -> Node:
    return Node(f"aten.{name}.default", [x.results[0], *bounds], tensor(), (2,))


def folded(*nodes: Node, outputs: tuple[Node, ...] = ()) -> Graph:
    (source,) = (item for item in nodes[0].reads[:1] if isinstance(item, Tensor))
    results = [node.result for node in outputs or nodes[-1:]]
    graph = Graph([source], [result for result in results if isinstance(result, Tensor)], list(nodes))
    fold_clamps(graph)
    graph.verify()
    return graph


@pytest.mark.parametrize(
    ("name", "arguments", "bounds"),
    [
        ("relu", (), (0.0, math.inf)),
        ("hardtanh", (0, 6), (0.0, 6.0)),
        ("clamp", (None, 2.5), (-math.inf, 2.5)),
        ("clamp", (3, 1), (3.0, 1.0)),
    ],
)
def test_clamps_become_bounds(name: str, arguments: tuple[float | None, ...], bounds: tuple[float, float]) -> None:
    node = convolution(tensor())
    last = clamp(name, node, *arguments)
    (found,) = folded(node, last).nodes
    assert found.operator == "et_vk.conv_with_clamp.default" and found.result is last.result
    assert tuple(found.arguments[9:]) == bounds and found.debug_handles == (1, 2)


@pytest.mark.parametrize(
    ("first", "second"), [((0, 6), (1, 4)), ((0, 6), (-1, 9)), ((0, 1), (2, 3)), ((5, 2), (0, 9)), ((0, 6), (4, 1))]
)
def test_two_clamps_become_one(first: tuple[float, float], second: tuple[float, float]) -> None:
    node = convolution(tensor())
    then = clamp("hardtanh", node, *first)
    (found,) = folded(node, then, clamp("clamp", then, *second)).nodes
    x = torch.linspace(-10, 10, 81)
    low, high = (float(str(bound)) for bound in found.arguments[9:])
    assert torch.equal(x.clamp(low, high), x.clamp(*first).clamp(*second))


def test_a_result_with_other_readers_is_not_clamped() -> None:
    node = convolution(tensor())
    relu = clamp("relu", node)
    other = Node("aten.neg.default", [node.result], tensor())
    assert len(folded(node, relu, other, outputs=(relu, other)).nodes) == 3
    node = convolution(tensor())
    relu = clamp("relu", node)
    assert len(folded(node, relu, outputs=(node, relu)).nodes) == 2


def test_other_operators_are_not_touched() -> None:
    node = Node("aten.neg.default", [tensor()], tensor())
    assert len(folded(node, clamp("relu", node)).nodes) == 2
    node = convolution(tensor())
    assert len(folded(node, clamp("clamp", node, math.nan, 1.0)).nodes) == 2
