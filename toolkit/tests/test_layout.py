"""Orders of axes, permutations and regroupings, compared with PyTorch's results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
import torch

from delegatekit_toolkit.layout import (
    composed,
    identity,
    inverse,
    merged,
    moves_elements,
    neighbors,
    permuted,
    regroupings,
    steps,
    to_channels_first,
    to_channels_last,
)
from delegatekit_toolkit.sizes import Dynamic

SHAPES = [(2, 3, 4), (1, 3, 4), (2, 1, 4), (2, 3, 1), (2, 2, 3, 4), (1, 1, 5), (6, 1, 1, 2), (2, 1, 3, 1, 2)]
#: Largest, smallest, and some that grow and shrink.
B, T = Dynamic((4, 1, 2, 4, 3, 1)), Dynamic((7, 1, 7, 2, 6, 5))


def counted(shape: Sequence[int]) -> torch.Tensor:
    return torch.arange(math.prod(shape)).reshape(tuple(shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_moving_elements_is_what_contiguity_says(shape: tuple[int, ...]) -> None:
    x = counted(shape)
    for order in itertools.permutations(range(len(shape))):
        assert moves_elements(shape, order) == (not torch.equal(x.permute(order).reshape(-1), x.reshape(-1)))


def test_axes_of_size_1_are_told_from_sizes_that_change() -> None:
    assert moves_elements((B, 1, T), (2, 1, 0))
    assert not moves_elements((B, 1, T), (1, 0, 2))


@pytest.mark.parametrize("order", [(), (0, 1), (1, 0), (2, 0, 1), (3, 1, 0, 2)])
def test_the_inverse_undoes_a_permutation(order: tuple[int, ...]) -> None:
    x = counted(range(2, 2 + len(order)))
    assert torch.equal(x.permute(order).permute(inverse(order)), x)
    assert permuted(tuple(x.shape), order) == tuple(x.permute(order).shape)
    assert permuted(order, inverse(order)) == identity(len(order))


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_channels_go_last_and_come_back(rank: int) -> None:
    x = counted((2, 3, 4, 5, 6)[:rank])
    assert torch.equal(x.permute(to_channels_last(rank)), x.movedim(1, -1))
    assert torch.equal(x.permute(to_channels_last(rank)).permute(to_channels_first(rank)), x)


@pytest.mark.parametrize("shape", SHAPES)
def test_merged_permutations_move_the_same_elements(shape: tuple[int, ...]) -> None:
    data = counted(shape)
    for order in itertools.permutations(range(len(shape))):
        sizes, axes = merged(shape, order)
        want = data.permute(order).reshape(-1)
        assert torch.equal(data.reshape(sizes).permute(axes).reshape(-1), want)
        assert 1 not in sizes


def test_axes_that_stay_neighbors_are_one() -> None:
    assert merged((1, 3, 224, 225), (0, 2, 3, 1)) == ((3, 224 * 225), (1, 0))
    assert merged((2, 3, 4, 5), (0, 3, 1, 2)) == ((2, 12, 5), (0, 2, 1))
    assert merged((2, 1, 4, 5), (0, 2, 1, 3)) == ((40,), (0,))
    assert merged((B, 3, T), (0, 2, 1)) == ((B, 3, T), (0, 2, 1))
    assert merged((B, 3, T), (1, 2, 0)) == ((B, 3 * T), (1, 0))


MIDDLES = [
    ((2, 3, 4), (6, 4)),
    ((2, 3, 4), (2, 2, 6)),
    ((4, 6), (2, 2, 6)),
    ((1, 4, 6), (4, 2, 3)),
    ((4, 2, 1, 2), (2, 8)),
]


@pytest.mark.parametrize(("shape", "middle"), MIDDLES)
def test_two_permutations_are_one(shape: tuple[int, ...], middle: tuple[int, ...]) -> None:
    data, found = counted(shape), 0
    for first in itertools.permutations(range(len(shape))):
        for second in itertools.permutations(range(len(middle))):
            want = data.permute(first).reshape(middle).permute(second).reshape(-1)
            both = composed(shape, first, middle, second)
            if both is not None:
                found += 1
                assert torch.equal(data.reshape(both[0]).permute(both[1]).reshape(-1), want)
                assert moves_elements(*both) == (not torch.equal(want, data.reshape(-1)))
    assert found


def test_axes_that_are_cut_unevenly_are_not_composed() -> None:
    assert composed((2, 3), (1, 0), (2, 3), (1, 0)) is None
    assert composed((2, 3), (1, 0), (3, 2), (1, 0)) == ((6,), (0,))


def test_the_smallest_runs_of_axes_with_equal_products() -> None:
    assert regroupings((2, 3, 4), (2, 12)) == [([0], [0]), ([1, 2], [1])]
    assert regroupings((6, 4), (2, 3, 2, 2)) == [([0], [0, 1]), ([1], [2, 3])]
    assert regroupings((B, 6, T), (B, 2, 3, 1, T)) == [([0], [0]), ([1], [1, 2]), ([2], [4])]
    assert regroupings((B, T, 6), (B * T, 2, 3)) == [([0, 1], [0]), ([2], [1, 2])]
    assert regroupings((2 * B, 3), (B, 6)) == [([0, 1], [0, 1])]


def test_axes_of_size_1_are_distributed_if_asked() -> None:
    assert regroupings((1, 8, 1, 1), (1, 8), units=True) == [([0], [0]), ([1], [1]), ([2], []), ([3], [])]
    assert regroupings((), (1, 1), units=True) == [([], [0]), ([], [1])]
    assert regroupings((1, 8, 1, 1), (1, 8)) == [([1], [1])]
    assert regroupings((), (1, 1)) == []


def test_sizes_that_are_equal_in_the_largest_call_only_are_told_apart() -> None:
    # In the largest call, the first axes agree; in others, they do not.
    n, m = Dynamic((6, 2, 3)), Dynamic((6, 3, 2))
    assert regroupings((n, m), (m, n)) == [([0, 1], [0, 1])]


@pytest.mark.parametrize("units", [False, True])
def test_every_run_is_a_reshape_of_its_own(units: bool) -> None:
    shapes = [shape for rank in range(1, 5) for shape in itertools.product((1, 2, 3, 4, 6), repeat=rank)]
    pairs = 0
    for before, after in itertools.product([shape for shape in shapes if math.prod(shape) == 12], repeat=2):
        pairs += 1
        runs = regroupings(before, after, units=units)
        for axes, shape in zip(zip(*runs, strict=True), (before, after), strict=True):
            kept = [axis for axis, size in enumerate(shape) if units or size != 1]
            assert [axis for run in axes for axis in run] == kept
        for left, right in runs:
            assert math.prod(before[axis] for axis in left) == math.prod(after[axis] for axis in right)
            if not units and len(left) > 1 and len(right) > 1:  # no smaller run is possible
                ends = [
                    {math.prod(s[axis] for axis in run[: i + 1]) for i in range(len(run) - 1)}
                    for s, run in ((before, left), (after, right))
                ]
                assert not ends[0] & ends[1]
    assert pairs > 100


@pytest.mark.parametrize("units", [False, True])
def test_shapes_of_different_sizes_are_refused(units: bool) -> None:
    for before, after in [((2, 3), (2, 4)), ((2,), ()), ((), (2,)), ((0, 3), (3,)), ((B,), (T,))]:
        with pytest.raises(ValueError, match="do not have the same number of elements"):
            regroupings(before, after, units=units)


@pytest.mark.parametrize("most", [4, 5])
@pytest.mark.parametrize("rank", [1, 3, 5, 6])
def test_steps_are_permutations_of_few_runs_that_make_the_whole(rank: int, most: int) -> None:
    x = counted(range(2, 2 + rank)[::-1])
    for order in list(itertools.permutations(range(rank)))[::7]:
        moved, found = x, steps(order, most)
        for step in found:
            moved = moved.permute(step)
        assert torch.equal(moved, x.permute(order))
        assert all(len(neighbors(step)) <= most for step in found)
        assert len(found) <= (1 if len(neighbors(order)) <= most else 3)


def test_axes_of_size_1_part_no_neighbors() -> None:
    assert neighbors((0, 2, 1, 3), units=(1,)) == [[0, 2, 3]]
    assert neighbors((2, 0, 1)) == [[2], [0, 1]]
