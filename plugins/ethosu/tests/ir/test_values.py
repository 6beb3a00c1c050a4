"""Orders of axes, permutations and reshapes, against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from delegatekit_ethosu.ir.builder import Builder
from delegatekit_ethosu.ir.values import Value, blocks, composed, merged, moves_elements
from delegatekit_toolkit.tosa import DType, Reshape, Transpose


def test_axes_that_stay_neighbours_are_one() -> None:
    assert merged((1, 3, 224, 225), (0, 2, 3, 1)) == ((3, 224 * 225), (1, 0))
    assert merged((2, 3, 4, 5), (0, 3, 1, 2)) == ((2, 12, 5), (0, 2, 1))
    assert merged((2, 1, 4, 5), (0, 2, 1, 3)) == ((40,), (0,))


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 4, 5), (2, 1, 3, 1, 2)])
def test_merged_permutations_move_the_same_elements(shape: tuple[int, ...]) -> None:
    data = np.arange(np.prod(shape))
    for perms in itertools.permutations(range(len(shape))):
        sizes, axes = merged(shape, perms)
        want = data.reshape(shape).transpose(perms).reshape(-1)
        assert np.array_equal(data.reshape(sizes).transpose(axes).reshape(-1), want)
        assert moves_elements(shape, perms) == (not np.array_equal(want, data))


MIDDLES = [
    ((2, 3, 4), (6, 4)),
    ((2, 3, 4), (2, 2, 6)),
    ((4, 6), (2, 2, 6)),
    ((1, 4, 6), (4, 2, 3)),
    ((4, 2, 1, 2), (2, 8)),
]


@pytest.mark.parametrize(("shape", "middle"), MIDDLES)
def test_two_permutations_are_one(shape: tuple[int, ...], middle: tuple[int, ...]) -> None:
    data, found = np.arange(np.prod(shape)), 0
    for first in itertools.permutations(range(len(shape))):
        for second in itertools.permutations(range(len(middle))):
            want = data.reshape(shape).transpose(first).reshape(middle).transpose(second).reshape(-1)
            both = composed(shape, first, middle, second)
            if both is not None:
                found += 1
                assert np.array_equal(data.reshape(both[0]).transpose(both[1]).reshape(-1), want)
                assert moves_elements(*both) == (not np.array_equal(want, data))
    assert found


def test_axes_that_are_cut_unevenly_are_not_composed() -> None:
    assert composed((2, 3), (1, 0), (2, 3), (1, 0)) is None
    assert composed((2, 3), (1, 0), (3, 2), (1, 0)) == ((6,), (0,))


def test_reshapes_are_cut_into_the_smallest_groups() -> None:
    assert blocks((2, 3, 4), (2, 12)) == [([0], [0]), ([1, 2], [1])]
    assert blocks((6, 4), (2, 3, 2, 2)) == [([0], [0, 1]), ([1], [2, 3])]
    assert blocks((1, 8, 1, 1), (1, 8)) == [([0], [0]), ([1], [1]), ([2], []), ([3], [])]
    assert blocks((), (1, 1)) == [([], [0]), ([], [1])]


VIEWS = [((2, 3, 4, 5), (2, 3, 20)), ((2, 3, 4, 5), (6, 20)), ((1, 8, 4, 4), (1, 2, 4, 4, 4)), ((2, 8, 1, 1), (2, 8))]


@pytest.mark.parametrize(("before", "after"), VIEWS)
def test_views_of_stored_tensors_are_the_programs(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    data = np.arange(np.prod(before)).reshape(before) % 100
    for order in itertools.permutations(range(len(before))):
        b = Builder("test", "u55")
        stored = b.graph.constant(data.transpose(order), DType.INT8)
        made = b.contiguous(b.view(Value(stored, order), after))
        assert made.data is not None and np.array_equal(made.data, data.reshape(after))


def test_joined_pixels_of_channels_last_images_do_not_move() -> None:
    b = Builder("test", "u55")
    image = Value(b.graph.input("x", (1, 7, 7, 16), DType.INT8), (0, 2, 3, 1))
    rows = b.view(image, (1, 16, 49)).permuted((0, 2, 1))
    assert b.contiguous(rows).shape == (1, 49, 16)
    assert [type(operation.operator) for operation in b.graph.operations] == [Reshape]


def test_the_cheapest_way_is_taken_and_what_cannot_run_is_not() -> None:
    costs = {(6, 4): None, (2, 3, 4): 7}

    def estimate(graph: object) -> int | None:
        (operation,) = (item for item in graph.operations if isinstance(item.operator, Transpose))  # type: ignore[attr-defined]
        return costs[operation.inputs[0].shape]

    b = Builder("test", "u55", estimate)
    x = b.graph.input("x", (2, 3, 4), DType.INT8)
    assert b.transposed(x, (2, 0, 1)).shape == (4, 2, 3)
    assert [operation.operator for operation in b.graph.operations if not isinstance(operation.operator, Reshape)] == [
        Transpose((2, 0, 1))
    ]
