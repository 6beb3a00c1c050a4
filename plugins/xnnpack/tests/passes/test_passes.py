"""Folding of clamps and paddings: counted in the graph, checked in the stock runtime."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from delegatekit_xnnpack.ir import operators as ops
from delegatekit_xnnpack.ir.builder import GraphBuilder
from delegatekit_xnnpack.ir.types import Bounds, DataType
from delegatekit_xnnpack.options import XnnpackOptions
from delegatekit_xnnpack.passes import drop_unread, fold_clamps, optimize

IMAGE = (1, 3, 8, 7)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6(), nn.Hardtanh(-0.25, 0.5)], ids=str)
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(3, 4, 3), IMAGE),
        (nn.Conv2d(3, 3, 3, groups=3), IMAGE),
        (nn.ConvTranspose2d(3, 4, 3), IMAGE),
        (nn.Conv1d(3, 4, 3), (1, 3, 9)),
        (nn.Linear(7, 4), IMAGE),
        (nn.AvgPool2d(2), IMAGE),
        (nn.MaxPool2d(2), IMAGE),
        (nn.AdaptiveAvgPool2d(1), IMAGE),
    ],
    ids=str,
)
def test_an_activation_is_folded_into_the_layer(layer, shape, activation, matches_eager):
    lowered = matches_eager(nn.Sequential(layer, activation), torch.randn(shape), terms=64)
    assert lowered.nodes["Clamp"] == 0


@pytest.mark.parametrize("function", [torch.add, torch.sub, torch.mul, torch.div])
def test_an_activation_is_folded_into_arithmetic(function, matches_eager):
    inputs = torch.randn(3, 4), torch.rand(3, 4) + 0.5
    lowered = matches_eager(lambda a, b: function(a, b).clamp(-0.5, 0.75), *inputs)
    assert lowered.nodes["Clamp"] == 0


@pytest.mark.parametrize("function", [torch.maximum, torch.matmul])
def test_an_activation_stays_where_the_runtime_would_ignore_it(function, matches_eager):
    lowered = matches_eager(lambda a, b: function(a, b).relu(), torch.randn(2, 4, 4), torch.randn(2, 4, 4), terms=4)
    assert lowered.nodes["Clamp"] == 1


def test_a_result_with_another_reader_keeps_its_clamp_apart(matches_eager):
    def function(x):
        y = x + 1.0
        return y.relu() * y

    assert matches_eager(function, torch.randn(3, 4)).nodes["Clamp"] == 1


def test_a_returned_result_keeps_its_clamp_apart(matches_eager):
    def function(x):
        y = x + 1.0
        return y, y.relu()

    assert matches_eager(function, torch.randn(3, 4)).nodes["Clamp"] == 1


@pytest.mark.parametrize(
    ("first", "second"), [((0.0, math.inf), (-1.0, 0.5)), ((-1.0, 0.5), (0.75, 2.0)), ((-2.0, -1.0), (-0.5, 1.0))]
)
def test_two_clamps_are_one(first, second, matches_eager):
    lowered = matches_eager(lambda x: x.clamp(*first).clamp(*second), torch.randn(50))
    assert lowered.nodes == {"Clamp": 1}


def test_bounds_compose_like_clamps():
    numbers = torch.linspace(-3, 3, 61)
    for first in [(-1.0, 1.0), (0.0, math.inf), (2.0, 2.5), (-2.5, -2.0)]:
        for second in [(-0.5, 0.5), (-math.inf, 0.0), (1.0, 2.0)]:
            both = Bounds(*first).then(Bounds(*second))
            assert torch.equal(numbers.clamp(*first).clamp(*second), numbers.clamp(*both))


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(3, 3, 3, groups=3)], ids=str)
def test_zeros_around_a_convolution_are_folded_into_it(layer, matches_eager):
    lowered = matches_eager(nn.Sequential(nn.ZeroPad2d((0, 1, 2, 3)), layer), torch.randn(IMAGE), terms=27)
    assert lowered.nodes["StaticConstantPad"] == 0


@pytest.mark.parametrize(
    ("pad", "layer"),
    [
        (nn.ConstantPad2d(1, 0.5), nn.Conv2d(3, 4, 3)),
        (nn.ConstantPad3d((0, 0, 0, 0, 1, 0), 0.0), nn.Conv2d(4, 4, 3)),
        (nn.ZeroPad2d(1), nn.ConvTranspose2d(3, 4, 3)),
        (nn.ZeroPad2d(1), nn.MaxPool2d(3)),
        (nn.ZeroPad2d(1), nn.AvgPool2d(3)),
    ],
    ids=str,
)
def test_a_padding_that_means_something_else_stays(pad, layer, matches_eager):
    lowered = matches_eager(nn.Sequential(pad, layer), torch.randn(IMAGE) - 2.0, terms=36)
    assert lowered.nodes["StaticConstantPad"] == 1


def test_minus_infinity_around_maximum_pooling_is_folded_into_it(matches_eager):
    module = nn.Sequential(nn.ConstantPad2d((0, 1, 0, 1), -math.inf), nn.MaxPool2d(3, 2))
    assert matches_eager(module, torch.randn(IMAGE)).nodes["StaticConstantPad"] == 0


def test_a_window_that_would_see_only_padding_keeps_the_pad_apart(matches_eager):
    module = nn.Sequential(nn.ConstantPad2d((0, 0, 3, 0), -math.inf), nn.MaxPool2d(2, 2))
    lowered = matches_eager(module, torch.randn(1, 2, 5, 6))
    assert lowered.nodes["StaticConstantPad"] == 1


def test_a_pad_with_another_reader_is_folded_and_kept(matches_eager):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            padded = F.pad(x, (1, 1, 1, 1))
            return self.layer(padded) + padded

    assert matches_eager(Both(), torch.randn(IMAGE), terms=4).nodes["StaticConstantPad"] == 1


def test_equal_nodes_are_merged():
    builder = GraphBuilder()
    x = builder.input((2, 3))
    first, second = (builder.unary(ops.UnaryKind.EXP, x) for _ in range(2))
    assert first.value is second.value
    assert len(builder.graph.nodes) == 1


def test_unread_nodes_are_dropped():
    builder = GraphBuilder()
    x = builder.input((2, 3))
    builder.unary(ops.UnaryKind.EXP, x)
    builder.output(builder.unary(ops.UnaryKind.ABS, x))
    drop_unread(builder.graph)
    assert [str(node.operator.kind.value) for node in builder.graph.nodes] == ["Abs"]


def test_folded_nodes_keep_all_debug_handles():
    builder = GraphBuilder()
    x = builder.input((2, 3))
    builder.debug_handle = 7
    y = builder.binary(ops.BinaryKind.ADD, x, builder.filled((), 1.0, DataType.FLOAT32))
    builder.debug_handle = 8
    builder.output(builder.clamp(y, 0.0, 6.0))
    fold_clamps(builder.graph)
    (node,) = builder.graph.nodes
    assert node.debug_handles == (7, 8)
    assert node.clamp == (0.0, 6.0)


def test_optimized_graphs_verify():
    builder = GraphBuilder()
    x = builder.input((1, 3, 8, 8))
    padded = builder.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], -math.inf)
    pool = ops.Pool(ops.PoolKind.MAXIMUM, ops.Padding(), (3, 3), (1, 1))
    builder.output(builder.clamp(builder.from_nhwc(builder.emit(pool, builder.nhwc(padded))), 0.0, 1.0))
    optimize(builder.graph, XnnpackOptions())
    builder.graph.verify()
