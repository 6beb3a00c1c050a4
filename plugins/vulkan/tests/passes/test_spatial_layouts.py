"""The device forms of the tensors of operators on images."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from delegatekit.edge import build_edge
from delegatekit_toolkit.testing import as_module
from delegatekit_vulkan.compile import build_graph
from delegatekit_vulkan.ir.graph import Graph, Tensor
from delegatekit_vulkan.ir.types import Layout, Storage
from delegatekit_vulkan.options import VulkanOptions
from delegatekit_vulkan.passes import optimize
from delegatekit_vulkan.support import VulkanPartitioner


def optimized(model: object, *inputs: torch.Tensor) -> Graph:
    keep = VulkanPartitioner(VulkanOptions()).keep_operators()
    exported = torch.export.export(as_module(model), inputs, strict=False)
    return optimize(build_graph(build_edge(exported, keep=keep).view, VulkanOptions()), VulkanOptions())


def layouts(graph: Graph) -> list[Layout]:
    return [result.layout for node in graph.nodes for result in node.results if isinstance(result, Tensor)]


@pytest.mark.parametrize(
    ("module", "layout"),
    [
        (nn.Conv1d(6, 7, 1), Layout.HEIGHT_PACKED),
        (nn.Conv1d(6, 6, 3, groups=6), Layout.HEIGHT_PACKED),
        (nn.Conv1d(6, 6, 3), Layout.CHANNELS_PACKED),
    ],
    ids=str,
)
def test_convolutions_over_one_axis_are_packed_by_their_kernel(module: nn.Module, layout: Layout) -> None:
    assert layouts(optimized(module, torch.randn(2, 6, 9))) == [layout]


def test_a_network_of_images_stays_packed_along_channels() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 1), nn.ReLU(), nn.AvgPool2d(2)
    )
    graph = optimized(model, torch.randn(1, 3, 16, 16))
    names = [node.operator.split(".")[1] for node in graph.nodes]
    assert names == ["conv_with_clamp", "max_pool2d", "conv_with_clamp", "avg_pool2d"]
    assert set(layouts(graph)) == {Layout.CHANNELS_PACKED}


def test_a_grid_lies_in_a_buffer() -> None:
    def sample(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid, padding_mode="border", align_corners=True)

    graph = optimized(sample, torch.randn(1, 3, 5, 5), torch.rand(1, 4, 4, 2))
    image, grid = graph.inputs
    assert image.storage is Storage.TEXTURE_3D and image.layout is Layout.CHANNELS_PACKED
    assert grid.storage is Storage.BUFFER and len(graph.nodes) == 1
