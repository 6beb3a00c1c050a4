"""Operators that write to places that tensors name, as caches of keys and values need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit_conformance.testkit import refusals
from delegatekit_qnn.options import QnnOptions
from delegatekit_qnn.support import QnnPartitioner

CACHE = torch.randn((2, 4, 6, 8), generator=torch.Generator().manual_seed(1))
ROW = torch.randn((2, 4, 1, 8), generator=torch.Generator().manual_seed(2))
MATRIX = CACHE[0, 0].contiguous()
PLACES = torch.tensor([[0, 2, 1], [1, 0, 3], [5, 4, 3], [0, 1, 2], [3, 2, 0], [1, 2, 5]])


def test_rows_of_a_cache_are_written(agree: Callable[..., Any]) -> None:
    def write(cache: torch.Tensor, row: torch.Tensor, place: torch.Tensor) -> Any:
        first = cache.clone()
        first[:, :, place] = row
        second = cache.index_copy(2, place, row)
        third = torch.slice_scatter(cache, row, 2, 3, 4)
        return first * 2, second * 2, third * 2, torch.select_scatter(cache, row[:, :, 0], 2, -1) * 2

    agree(write, CACHE, ROW, torch.tensor([5]))


def test_a_place_beyond_the_end_is_in_no_other_row() -> None:
    class Cache(torch.nn.Module):
        def forward(self, cache: torch.Tensor, row: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
            return cache.index_copy(2, place, row) * 2

    program = delegatekit.lower(Cache(), (CACHE, ROW, torch.tensor([5])), backends=["qnn"])
    found = delegatekit.load(program.buffer)["forward"](CACHE, ROW, torch.tensor([6]))
    # The processor computes in float16.
    torch.testing.assert_close(found[:, :, :5], 2 * CACHE[:, :, :5], rtol=2**-10, atol=0)


def test_elements_at_places_of_several_axes_are_written(agree: Callable[..., Any]) -> None:
    def write(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> Any:
        first, second, third = x.clone(), x.clone(), x.clone()
        first[i, :, j] = 2.0
        second[i] = x[:1] * 2
        third[x > 0] = 3.0
        return first * 2, second * 2, third * 2

    agree(write, CACHE, torch.tensor([0, 1]), torch.tensor([5, -2]))


def test_elements_are_written_and_added_along_an_axis(agree: Callable[..., Any]) -> None:
    def write(x: torch.Tensor, i: torch.Tensor) -> Any:
        source = x[:, :3] * 2
        added = x.index_put((i[0],), x[:3], accumulate=True)
        return x.scatter(1, i, source) + 1, x.scatter(1, i, 2.0) + 1, x.scatter_add(1, i, source) + 1, added + 1

    agree(write, MATRIX, PLACES)


def test_one_number_is_written_and_added_at_a_place_without_axes(agree: Callable[..., Any]) -> None:
    def write(x: torch.Tensor, place: torch.Tensor, number: torch.Tensor) -> Any:
        return tuple(x.index_put((place,), number, accumulate=added) + 1 for added in (True, False))

    agree(write, MATRIX[0], torch.tensor(2), torch.tensor(4.0))


def test_several_additions_to_one_place_all_count(agree: Callable[..., Any]) -> None:
    agree(lambda x, i: x.scatter_add(1, i, x[:, :3]) + 1, MATRIX, torch.zeros(6, 3, dtype=torch.int64))


def test_what_is_written_is_joined_with_what_is_there_and_with_itself(agree: Callable[..., Any]) -> None:
    def write(x: torch.Tensor, i: torch.Tensor) -> Any:
        source = x[:, :3] * 2
        return (
            *(
                x.scatter_reduce(1, i, source, how, include_self=included)
                for how in ("sum", "prod", "mean")
                for included in (True, False)
            ),
            x.scatter(1, i, source, reduce="add"),
            x.scatter(1, i, source, reduce="multiply"),
            x.scatter(0, i[:2], 0.5, reduce="multiply"),
        )

    agree(write, MATRIX, PLACES)
    agree(write, MATRIX, torch.ones(6, 3, dtype=torch.int64))


def test_elements_are_put_at_places_among_all(agree: Callable[..., Any]) -> None:
    places = torch.tensor([[0, 7], [-1, 20]])

    def put(x: torch.Tensor, source: torch.Tensor) -> Any:
        return x.put(places, source) + 1, x.put(places, source, accumulate=True) + 1, (x > 0).put(places, source > 0)

    agree(put, MATRIX, MATRIX[:2, :2].contiguous() * 3)


def test_truth_values_are_put_at_places_of_several_axes(agree: Callable[..., Any]) -> None:
    table = MATRIX[:4, :2].reshape(2, 4, 1, 1).repeat(1, 1, 1, 4) > 0
    index, zeros = torch.tensor([[[1, -1, 0], [-4, 3, -3]]]), torch.zeros(3, dtype=torch.int32)

    def put(x: torch.Tensor, value: torch.Tensor) -> Any:
        return torch.ops.aten.index_put.default(x, [None, index, zeros], value)

    agree(put, table, torch.tensor([True, False]).reshape(2, 1, 1))


def test_the_largest_that_is_written_is_refused() -> None:
    partitioner = QnnPartitioner(QnnOptions(validate=False))
    reasons = refusals(partitioner, lambda x, i: x.scatter_reduce(1, i, x, "amax"), MATRIX[:, :3], PLACES)
    assert reasons == ["reduce = amax"]


def test_elements_are_gathered_along_an_axis(agree: Callable[..., Any]) -> None:
    agree(lambda x, i: (x.gather(1, i) + 1, x.gather(0, i[:2]) + 1, (x > 0).gather(1, i)), MATRIX, PLACES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64, torch.bool])
def test_what_nothing_else_reads_is_overwritten_as_a_whole(agree: Callable[..., Any], dtype: torch.dtype) -> None:
    old, new = (MATRIX > 0).to(dtype), (MATRIX < 1).to(dtype)
    agree(lambda x, y: torch.ops.aten.copy(x, y).logical_xor(y[:1]), old, new)


def test_what_nothing_else_reads_is_no_whole_part() -> None:
    partitioner = QnnPartitioner(QnnOptions(validate=False))
    reasons = refusals(partitioner, lambda x, y: x.slice_scatter(y, 1) + 1, MATRIX, MATRIX)
    assert len(reasons) == 1 and reasons[0].endswith("is overwritten as a whole, and nothing else reads it")


def test_what_something_else_reads_may_be(agree: Callable[..., Any]) -> None:
    agree(lambda x, y: (torch.fill(x, 2.0) + 1, x.slice_scatter(y, 1) + x), MATRIX, MATRIX * 2)
