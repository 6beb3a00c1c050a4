"""Zeros around an image are added by the convolution that reads it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from delegatekit_conformance import testkit
from delegatekit_vulkan.blob.reader import parse
from delegatekit_vulkan.ir.graph import Argument, Graph, Node, Tensor
from delegatekit_vulkan.ir.types import DataType
from delegatekit_vulkan.passes.pads import fold_pads

FLOAT = DataType.FLOAT32


def tensor(*shape: int) -> Tensor:
    return Tensor(shape, FLOAT, FLOAT)


def padded(x: Tensor, *pads: int, value: float = 0.0) -> Node:
    height, width = (x.sizes[axis] + sum(pads[2 * index : 2 * index + 2]) for axis, index in ((2, 1), (3, 0)))
    return Node("aten.constant_pad_nd.default", [x, pads, value], tensor(1, 3, height, width), (1,))


def convolution(x: Tensor, padding: tuple[int, int] = (0, 0), *, transposed: bool = False) -> Node:
    weight = Tensor((3, 3, 3, 3), FLOAT, FLOAT, torch.randn(3, 3, 3, 3))
    settings: list[Argument] = [(1, 1), padding, (1, 1), transposed, (0, 0), 1]
    return Node("aten.convolution.default", [x, weight, None, *settings], tensor(1, 3, 9, 9), (2,))


def folded(*nodes: Node, outputs: list[Tensor] | None = None) -> Graph:
    (source,) = (item for item in nodes[0].reads[:1] if isinstance(item, Tensor))
    last = nodes[-1].result
    assert isinstance(last, Tensor)
    graph = Graph([source], outputs or [last], list(nodes))
    fold_pads(graph)
    graph.verify()
    return graph


def result(node: Node) -> Tensor:
    assert isinstance(node.result, Tensor)
    return node.result


def test_equal_zeros_before_and_after_are_the_padding_of_the_convolution() -> None:
    pad = padded(tensor(1, 3, 8, 8), 2, 2, 1, 1)
    (node,) = folded(pad, convolution(result(pad), (3, 0))).nodes
    assert node.arguments[4] == (4, 2) and node.arguments[0] is pad.arguments[0]
    assert node.debug_handles == (1, 2)


def test_one_padding_after_another_is_folded_as_well() -> None:
    first = padded(tensor(1, 3, 8, 8), 1, 1)
    second = padded(result(first), 0, 0, 2, 2)
    (node,) = folded(first, second, convolution(result(second))).nodes
    assert node.arguments[4] == (2, 1)


@pytest.mark.parametrize(
    ("pads", "value"), [((0, 1, 0, 1), 0.0), ((1, 1, 1, 1), 1.0), ((0, 0, 0, 0, 1, 1), 0.0)], ids=str
)
def test_other_paddings_stay(pads: tuple[int, ...], value: float) -> None:
    pad = padded(tensor(1, 3, 8, 8), *pads, value=value)
    assert len(folded(pad, convolution(result(pad))).nodes) == 2


def test_a_transposed_convolution_pads_its_result_and_not_its_input() -> None:
    pad = padded(tensor(1, 3, 8, 8), 1, 1, 1, 1)
    assert len(folded(pad, convolution(result(pad), transposed=True)).nodes) == 2


def test_a_padding_stays_for_its_other_readers() -> None:
    pad = padded(tensor(1, 3, 8, 8), 1, 1, 1, 1)
    node = convolution(result(pad))
    graph = folded(pad, node, outputs=[result(pad), result(node)])
    assert graph.nodes == [pad, node] and node.arguments[0] is pad.arguments[0]


def test_results_are_those_of_padding_and_convolution() -> None:
    model = nn.Sequential(
        nn.ZeroPad2d((2, 2, 1, 1)), nn.Conv2d(3, 4, 3, padding=1), nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(4, 4, 3, 2)
    )
    lowered = testkit.lower(model, torch.randn(1, 3, 8, 7), backend="vulkan")
    testkit.compare(lowered, tolerance=1e-5)
    tables, _ = parse(lowered.delegate.blob)
    assert [str(call.name).split(".")[1] for call in tables.chain or ()] == [
        "convolution",
        "constant_pad_nd",
        "convolution",
    ]


@pytest.mark.needs_device
def test_padding_over_one_axis() -> None:
    lowered = testkit.lower(
        nn.Sequential(nn.ConstantPad1d(2, 0.0), nn.Conv1d(3, 4, 3)), torch.randn(2, 3, 8), backend="vulkan"
    )
    testkit.compare(lowered, tolerance=1e-5)
    tables, _ = parse(lowered.delegate.blob)
    assert len(tables.chain or ()) == 1
