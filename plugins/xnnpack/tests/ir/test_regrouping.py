"""Reshapes with sizes that change, in the stock runtime, at every size and from every storage order."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from delegatekit_api import LoweringError
from delegatekit_toolkit.layout import regroupings
from delegatekit_toolkit.sizes import Dynamic
from delegatekit_xnnpack.ir.builder import GraphBuilder, regrouping_obstacle
from delegatekit_xnnpack.ir.operators import UnaryKind
from delegatekit_xnnpack.options import XnnpackOptions
from delegatekit_xnnpack.passes import optimize
from delegatekit_xnnpack.runtime import XnnpackRuntime

#: Largest, smallest, and some that grow and shrink.
B, T = Dynamic((4, 1, 2, 4, 3, 1)), Dynamic((7, 1, 7, 2, 6, 5))


def _in_call(shape, call):
    """A shape in one of the calls."""
    return [size.calls[call] if isinstance(size, Dynamic) else size for size in shape]


def _check(payload_of, shape, order, target):
    """Reshape a permuted input: `order` is the stored position of each axis of `shape`."""
    builder = GraphBuilder()
    stored = [shape[order.index(axis)] for axis in range(len(shape))]
    tensor = builder.input(tuple(stored)).permuted(order)
    builder.output(builder.unary(UnaryKind.NEGATE, builder.reshape(tensor, target)))
    optimize(builder.graph, XnnpackOptions())
    runtime = XnnpackRuntime()
    payload = payload_of(builder.graph)
    handle = runtime.init(payload)
    for call in range(len(B.calls)):
        x = torch.randn(_in_call(stored, call))
        output = torch.empty(payload.outputs[0].shape)
        runtime.execute(handle, [x], [output])
        assert torch.equal(output, -x.permute(order).reshape(_in_call(target, call)))
    runtime.destroy(handle)
    return builder.graph


CASES = [
    # One size that changes: XNNPACK infers it.
    ((B, 6), (B, 2, 3)),
    ((B, 6), (6 * B,)),
    ((B, 6), (2 * B, 3)),
    ((2, B, 3), (1, 2, B, 1, 3)),
    ((B, T), (B * T,)),
    ((B, T, 3), (B * T, 3)),
    # Several.
    ((B, T, 6), (B, T, 2, 3)),
    ((B, T, 2, 3), (B, T, 6)),
    ((B, 6, T), (B, 3, 2, T)),
    ((2, 3, B, T), (6, B, T)),
    ((B, T, 12), (B, T, 2, 3, 2)),
    ((B, T, 2, 3, 2), (B, T, 12)),
    ((B, T, 4, 3), (B, T, 2, 6)),
    ((B, T), (B, 1, T)),
    ((B, T), (1, B, 1, T, 1)),
    ((B, 1, T), (B, T)),
    ((1, B, 1, 1, T), (B, T)),
    ((1, B, T, 1), (B, 1, T)),
    ((B, 1, T, 6), (B, T, 3, 1, 2)),
    ((B, 4, T, 6), (B, 2, 2, T, 6)),
    ((B, T, B, 2), (B, T, 1, B, 2)),
]


@pytest.mark.parametrize(("shape", "target"), CASES)
def test_a_reshape_reads_the_same_elements_at_every_size(payload_of, shape, target):
    source = random.Random(str((shape, target)))
    orders = list(itertools.permutations(range(len(shape))))
    for order in source.sample(orders, min(4, len(orders))):
        _check(payload_of, shape, order, target)


def test_one_size_that_changes_costs_one_reshape(payload_of):
    graph = _check(payload_of, (B, 6), (0, 1), (B, 2, 3))
    assert [type(node.operator).__name__ for node in graph.nodes] == ["Unary", "Reshape"]


@pytest.mark.parametrize(
    ("shape", "target", "obstacle"),
    [
        ((B * T, 6), (B, T, 6), "sizes that change are joined or split"),
        ((T, B, 6), (T, 2 * B, 3), "sizes that change are joined or split"),
        ((B, T, 160), (B, T, 80, 2), "80 parts of an axis"),
        ((B, T, 2, 2, 2, 2), (B, T, 16), "needs 7 axes"),
        ((B, T, 24), (B, T, 2, 3, 2, 2), None),
        ((B, T, 2, 12), (B, T, 24), None),
    ],
)
def test_what_cannot_be_done_has_a_reason(shape, target, obstacle):
    found = regrouping_obstacle(shape, target)
    assert found == obstacle or (obstacle is not None and found is not None and found.startswith(obstacle))
    if obstacle is not None:
        with pytest.raises(LoweringError, match=obstacle):
            builder = GraphBuilder()
            builder.reshape(builder.input(shape), target)


def test_the_smallest_groups_of_axes_with_equal_products():
    assert regroupings((B, 6, T), (B, 2, 3, 1, T)) == [([0], [0]), ([1], [1, 2]), ([2], [4])]
    assert regroupings((B, T, 6), (B * T, 2, 3)) == [([0, 1], [0]), ([2], [1, 2])]
    assert regroupings((2 * B, 3), (B, 6)) == [([0, 1], [0, 1])]


def test_sizes_that_are_equal_in_the_largest_call_only_are_told_apart():
    # In the largest call, the first axes agree; in others, they do not.
    n, m = Dynamic((6, 2, 3)), Dynamic((6, 3, 2))
    assert regroupings((n, m), (m, n)) == [([0, 1], [0, 1])]
    assert regrouping_obstacle((n, m), (m, n)) is not None
