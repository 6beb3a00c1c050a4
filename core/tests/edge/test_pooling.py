"""Pooling and convolution in three dimensions, adaptive windows, and unused indices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import Node

from delegatekit.edge import EdgeMethod, build_edge
from delegatekit.fallback import decompose_nodes
from delegatekit_api.nodes import operator_name
from delegatekit_toolkit.testing import Apply

IMAGE, VOLUME = torch.randn(2, 3, 9, 8), torch.randn(2, 3, 6, 7, 9)
KEEP = ("aten.max_pool2d.default",)


def edge_of(module: nn.Module, x: torch.Tensor, keep: tuple[str, ...] = ()) -> EdgeMethod:
    method = build_edge(torch.export.export(module.eval(), (x,), strict=False), keep=keep)
    method.verify()
    return method


def run(method: EdgeMethod, x: torch.Tensor) -> list[torch.Tensor]:
    """Interpret the edge graph eagerly."""
    values: dict[Any, Any] = {method.inputs[0]: x, **method.constants}
    for node in method.graph.nodes:
        if node.op == "call_function":
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    return [values[item] for item in method.outputs if isinstance(item, Node)]


def operators(method: EdgeMethod) -> list[str]:
    return [operator_name(node) for node in method.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: F.max_pool2d(x, 2, padding=1, return_indices=True)[0], IMAGE),
        (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True, return_indices=True)[0], IMAGE[0]),
        (lambda x: F.max_pool3d(x, 2, 1, dilation=2, return_indices=True)[0], VOLUME),
        (lambda x: F.adaptive_max_pool1d(x, 2), IMAGE[0]),
        (lambda x: F.adaptive_max_pool1d(x, 5), IMAGE[0]),
        (lambda x: F.adaptive_max_pool2d(x, (3, 2)), IMAGE),
        (lambda x: F.adaptive_max_pool2d(x, (4, 8)), IMAGE),
        (lambda x: F.adaptive_max_pool2d(x, (12, None)), IMAGE[0]),
        (lambda x: F.adaptive_max_pool3d(x, (3, 1, 3)), VOLUME),
        (lambda x: F.adaptive_max_pool3d(x, (4, 3, 2)), VOLUME),
        (lambda x: x.max(1)[0], IMAGE),
        (lambda x: x.min(-1, keepdim=True)[0], IMAGE),
    ],
)
def test_maxima_without_their_places_have_no_indices(function: Any, x: torch.Tensor) -> None:
    method = edge_of(Apply(function), x, keep=KEEP)
    assert not any("indices" in name or "adaptive" in name or name.endswith(".dim") for name in operators(method))
    assert torch.equal(run(method, x)[0], function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(x, 2, return_indices=True),
        lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True),
        lambda x: F.adaptive_max_pool1d(x[0], 4, return_indices=True)[1],
        lambda x: torch.ops.aten.max_pool1d_with_indices(x[0], [2])[0],
        lambda x: x.max(2),
        lambda x: x.min(2)[1],
    ],
)
def test_places_that_somebody_asks_for_stay(function: Any) -> None:
    method = edge_of(Apply(function), IMAGE, keep=KEEP)
    expected = function(IMAGE)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert all(torch.equal(result, want) for result, want in zip(run(method, IMAGE), expected, strict=True))


def test_a_pooling_that_no_backend_wants_keeps_its_indices() -> None:
    function = Apply(lambda x: F.max_pool2d(x, 2, return_indices=True)[0])
    assert "aten.max_pool2d_with_indices.default" in operators(edge_of(function, IMAGE))


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": (2, 3, 3), "stride": 2, "padding": (0, 1, 1), "count_include_pad": False},
        {"kernel_size": 2, "ceil_mode": True},
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
        {"kernel_size": 2, "stride": (3, 3, 2), "padding": 1, "ceil_mode": True},
        {"kernel_size": 2, "divisor_override": 5},
        {"kernel_size": 3, "padding": 1, "ceil_mode": True, "divisor_override": -3},
    ],
)
@pytest.mark.parametrize("x", [VOLUME, VOLUME[0]], ids=["batch", "single"])
def test_averages_of_volumes_are_those_of_planes(settings: dict[str, Any], x: torch.Tensor) -> None:
    pool = nn.AvgPool3d(**settings)
    method = edge_of(pool, x)
    assert not any("3d" in name for name in operators(method))
    torch.testing.assert_close(run(method, x)[0], pool(x))


def test_averages_of_integers_are_cut_off_once() -> None:
    pool, x = nn.AvgPool3d(2), torch.arange(64).reshape(1, 1, 4, 4, 4) % 7 - 3
    method = edge_of(pool, x)
    assert any("3d" in name for name in operators(method))
    torch.testing.assert_close(run(method, x)[0], pool(x))


@pytest.mark.parametrize("size", [1, (3, 7, 3), (4, 3, 2), (None, 2, 9)], ids=str)
def test_adaptive_averages_of_volumes_are_those_of_planes(size: Any) -> None:
    pool = nn.AdaptiveAvgPool3d(size)
    method = edge_of(pool, VOLUME)
    assert not any("3d" in name for name in operators(method))
    torch.testing.assert_close(run(method, VOLUME)[0], pool(VOLUME))


def _decomposed(method: EdgeMethod) -> EdgeMethod:
    while True:
        volumes = [
            node
            for node in method.graph.nodes
            if "convolution" in str(node.target) and len(node.args[1].meta["val"].shape) == 5
        ]
        decomposed = decompose_nodes(method, volumes, keep=())
        if not decomposed.became:
            return method
        method = decomposed.edge
        method.verify()


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv3d(4, 6, 3),
        nn.Conv3d(4, 6, (1, 3, 3), padding=(0, 1, 1), bias=False),
        nn.Conv3d(4, 6, (3, 2, 1), stride=2, padding=1, groups=2),
        nn.Conv3d(4, 4, 3, stride=(3, 1, 1), padding=2, dilation=2, groups=4),
        nn.ConvTranspose3d(4, 6, 3),
        nn.ConvTranspose3d(4, 6, 2, stride=2, bias=False),
        nn.ConvTranspose3d(4, 6, 3, stride=(3, 1, 2), padding=(2, 0, 1), output_padding=(1, 0, 1), groups=2),
        nn.ConvTranspose3d(4, 6, (2, 1, 1), stride=(4, 1, 1), padding=(1, 0, 0), dilation=(3, 1, 1)),
    ],
    ids=str,
)
def test_convolutions_of_volumes_are_sums_of_those_of_planes(convolution: nn.Module) -> None:
    x = torch.randn(2, 4, 5, 6, 7)
    method = _decomposed(edge_of(convolution, x))
    ranks = {
        len(node.args[1].meta["val"].shape)
        for node in method.graph.nodes
        if node.target is torch.ops.aten.convolution.default
    }
    assert ranks == {4}
    torch.testing.assert_close(run(method, x)[0], convolution(x), rtol=1e-5, atol=1e-5)
