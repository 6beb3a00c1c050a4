"""Planned memory never overlaps while in use, and the arena is not larger than it must be."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegatekit.emit.memory import ALIGNMENT, Request, _in_order_of_time, _largest_first, plan_memory

REQUESTS = st.lists(
    st.tuples(st.integers(0, 4096), st.integers(0, 40), st.integers(0, 20)).map(
        lambda item: Request(item[0], item[1], item[1] + item[2])
    ),
    max_size=40,
)


@pytest.mark.parametrize("planner", [_largest_first, _in_order_of_time, plan_memory])
@given(requests=REQUESTS)
def test_values_in_use_at_the_same_time_do_not_overlap(planner: object, requests: list[Request]) -> None:
    plan = planner(requests)  # type: ignore[operator]
    assert all(offset % ALIGNMENT == 0 for offset in plan.offsets)
    for (first, start), (second, other) in itertools.combinations(zip(requests, plan.offsets, strict=True), 2):
        if first.first <= second.last and second.first <= first.last:
            assert start + first.size <= other or other + second.size <= start
    assert all(offset + request.size <= plan.size for request, offset in zip(requests, plan.offsets, strict=True))


def test_a_chain_of_equal_values_needs_two_places() -> None:
    chain = [Request(1024, step, step + 1) for step in range(100)]
    assert plan_memory(chain).size == 2048


@given(requests=REQUESTS)
def test_the_arena_is_at_least_the_largest_load_and_at_most_everything_at_once(requests: list[Request]) -> None:
    size = plan_memory(requests).size
    load = max((sum(r.size for r in requests if r.first <= step <= r.last) for step in range(61)), default=0)
    assert load <= size <= sum(max(ALIGNMENT, -(-r.size // ALIGNMENT) * ALIGNMENT) for r in requests)


def test_many_values_are_planned_in_little_time() -> None:
    requests = [Request(64 + step % 7 * 16, step, step + 2) for step in range(20_000)]
    start = time.process_time()
    plan = plan_memory(requests)
    assert time.process_time() - start < 2.0
    assert plan.size <= 64 * 16
