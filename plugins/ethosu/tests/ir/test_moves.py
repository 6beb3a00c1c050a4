"""Views and permutations of stored tensors, compared with NumPy; the cheapest of several ways."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from delegatekit_ethosu.ir.emission import VelaEmission
from delegatekit_ethosu.targets import TARGETS
from delegatekit_toolkit.tosa import DType, Graph, Reshape, Transpose
from delegatekit_toolkit.tosa.lowering.values import Value

VIEWS = [((2, 3, 4, 5), (2, 3, 20)), ((2, 3, 4, 5), (6, 20)), ((1, 8, 4, 4), (1, 2, 4, 4, 4)), ((2, 8, 1, 1), (2, 8))]


@pytest.mark.parametrize(("before", "after"), VIEWS)
def test_views_of_stored_tensors_are_the_programs(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    data = np.arange(np.prod(before)).reshape(before) % 100
    for order in itertools.permutations(range(len(before))):
        b = VelaEmission("test", TARGETS["ethos-u55-128"])
        stored = b.graph.constant(data.transpose(order), DType.INT8)
        made = b.contiguous(b.view(Value(stored, order), after))
        assert made.data is not None and np.array_equal(made.data, data.reshape(after))


def test_joined_pixels_of_channels_last_images_do_not_move() -> None:
    b = VelaEmission("test", TARGETS["ethos-u55-128"])
    image = Value(b.graph.input("x", (1, 7, 7, 16), DType.INT8), (0, 2, 3, 1))
    rows = b.view(image, (1, 16, 49)).permuted((0, 2, 1))
    assert b.contiguous(rows).shape == (1, 49, 16)
    assert [type(operation.operator) for operation in b.graph.operations] == [Reshape]


def test_the_cheapest_way_is_taken_and_what_cannot_run_is_not() -> None:
    costs = {(6, 4): None, (2, 3, 4): 7}

    def cycles(graph: Graph) -> int | None:
        (operation,) = (item for item in graph.operations if isinstance(item.operator, Transpose))
        return costs[operation.inputs[0].shape]

    b = VelaEmission("test", TARGETS["ethos-u55-128"], cycles)
    x = b.graph.input("x", (2, 3, 4), DType.INT8)
    assert b.transposed(x, (2, 0, 1)).shape == (4, 2, 3)
    assert [operation.operator for operation in b.graph.operations if not isinstance(operation.operator, Reshape)] == [
        Transpose((2, 0, 1))
    ]
