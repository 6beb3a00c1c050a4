"""Planned memory never overlaps while in use, and the arena is not larger than it must be."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegatekit.emit.arena import MemoryOptions, PlannedValue, Space, Spaces
from delegatekit.emit.memory import PLANNERS, MemoryPlan, Request, check_plan, largest_load, plan_memory
from delegatekit_api import LoweringError, OptionError

LIFETIMES = st.lists(st.tuples(st.integers(0, 4096), st.integers(0, 40), st.integers(0, 20)), max_size=40)
ALIGNMENTS = st.sampled_from([16, 32, 64, 4096])
REQUESTS = st.builds(
    lambda items, alignment: [Request(size, first, first + more, alignment) for size, first, more in items],
    LIFETIMES,
    ALIGNMENTS,
)


def overlap(requests: list[Request], offsets: tuple[int, ...]) -> list[tuple[int, int]]:
    """The pairs that are in use at the same time and share bytes, found by brute force."""
    return [
        (one, two)
        for one, two in itertools.combinations(range(len(requests)), 2)
        if max(requests[one].first, requests[two].first) <= min(requests[one].last, requests[two].last)
        and max(offsets[one], offsets[two]) < min(offsets[one] + requests[one].size, offsets[two] + requests[two].size)
    ]


# -- planners --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", PLANNERS)
@given(requests=REQUESTS)
def test_values_in_use_at_the_same_time_do_not_overlap(planner: str, requests: list[Request]) -> None:
    plan = plan_memory(requests, planner)
    assert not overlap(requests, plan.offsets)
    for request, offset in zip(requests, plan.offsets, strict=True):
        assert offset % request.alignment == 0
        assert 0 <= offset <= offset + request.size <= plan.size


@pytest.mark.parametrize("planner", PLANNERS)
@given(requests=REQUESTS)
def test_the_arena_is_at_least_the_largest_load_and_at_most_everything_at_once(
    planner: str, requests: list[Request]
) -> None:
    size = plan_memory(requests, planner).size
    load, peak = largest_load(requests)
    assert load == max((sum(r.size for r in requests if r.first <= step <= r.last) for step in range(62)), default=0)
    assert load == sum(r.size for r in requests if r.first <= peak <= r.last)
    assert load <= size <= sum(request.span for request in requests)


@given(requests=REQUESTS)
def test_best_is_never_larger_than_the_other_planners(requests: list[Request]) -> None:
    sizes = {planner: plan_memory(requests, planner).size for planner in PLANNERS}
    assert sizes["best"] == min(sizes.values())


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_chain_of_equal_values_needs_two_places(planner: str) -> None:
    chain = [Request(1024, step, step + 1) for step in range(100)]
    assert plan_memory(chain, planner).size == 2048


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("lifetime", [2, 40])
def test_many_values_are_planned_in_little_time(planner: str, lifetime: int) -> None:
    chance = random.Random(0)
    requests = [Request(chance.randint(0, 4096), step, step + chance.randint(0, lifetime)) for step in range(20_000)]
    start = time.process_time()
    plan = plan_memory(requests, planner)
    # About one second; comparing all pairs takes minutes. A machine under load may be slow.
    assert time.process_time() - start < 20.0
    check_plan(requests, plan)
    assert plan.size <= 1.4 * largest_load(requests)[0]


def test_best_leaves_the_slow_planner_out_where_all_values_live_at_once() -> None:
    requests = [Request(16 + step % 7 * 16, step % 100, 20_000) for step in range(20_000)]
    start = time.process_time()
    plan_memory(requests)
    assert time.process_time() - start < 20.0


# -- checking plans --------------------------------------------------------------------------------------------------


@given(requests=REQUESTS, data=st.data())
def test_a_plan_is_refused_exactly_if_values_overlap(requests: list[Request], data: st.DataObject) -> None:
    offsets = tuple(request.alignment * data.draw(st.integers(0, 8)) for request in requests)
    plan = MemoryPlan(offsets, max((o + r.size for o, r in zip(offsets, requests, strict=True)), default=0))
    pairs = overlap(requests, offsets)
    if not pairs:
        check_plan(requests, plan)
        return
    with pytest.raises(LoweringError, match="overlap") as caught:
        check_plan(requests, plan)
    assert any(f"request {one} " in str(caught.value) and f"request {two} " in str(caught.value) for one, two in pairs)


def test_a_users_planner_is_checked() -> None:
    requests = [Request(100, 0, 2), Request(50, 1, 3), Request(8, 3, 4)]
    good = MemoryPlan((0, 112, 0), 162)
    assert plan_memory(requests, lambda _: good) == good
    wrong = {
        r"request 0 \(bytes 0 to 100, steps 0 to 2\) and request 1 \(bytes 96 to 146, steps 1 to 3\)": (0, 96, 0),
        "request 1 .50 bytes. at offset 8, which is not a multiple of 16": (0, 8, 0),
        "request 2 .8 bytes. at offset -16": (0, 112, -16),
        "request 2 .8 bytes. at offset 160, beyond the end of its arena of 162 bytes": (0, 112, 160),
        "2 offsets for 3 values": (0, 112),
    }
    for message, offsets in wrong.items():
        with pytest.raises(LoweringError, match=message):
            plan_memory(requests, lambda _, offsets=offsets: replace(good, offsets=offsets))  # type: ignore[misc]
    with pytest.raises(LoweringError, match="returned a int"):
        plan_memory(requests, lambda _: 3)  # type: ignore[arg-type,return-value]


# -- spaces ----------------------------------------------------------------------------------------------------------


def value(name: str, size: int, first: int, last: int, *, is_buffer: bool = False) -> PlannedValue:
    more = {"is_input": False, "is_output": False, "is_buffer": is_buffer, "writers": ("w",), "readers": ("r",)}
    return PlannedValue("forward", (name,), size, "float32", (size // 4,), first, last, **more)  # type: ignore[arg-type]


def spread(options: MemoryOptions, values: list[PlannedValue], overread: int = 0) -> dict[str, tuple[int, int]]:
    places, sizes, used = Spaces(options).plan("forward", values, overread)
    assert sizes[0] == 0 and {space.memory_id: space.size for space in used}.items() <= dict(enumerate(sizes)).items()
    for number in range(1, len(sizes)):
        inside = [(v, offset) for v, (its, offset) in zip(values, places, strict=True) if its == number]
        requests = [Request(v.size, v.first, v.last, options.alignment) for v, _ in inside]
        check_plan(requests, MemoryPlan(tuple(offset for _, offset in inside), sizes[number]))
    return {v.name: place for v, place in zip(values, places, strict=True)}


def test_names_of_spaces_are_numbered_by_capacities_then_by_use() -> None:
    spaces: dict[str, Space] = {"a": "dram", "b": "sram", "c": "flash"}
    options = MemoryOptions(spaces=lambda v: spaces[v.name], capacities={"sram": 1 << 10})
    places = spread(options, [value("a", 64, 0, 1), value("b", 64, 0, 1), value("c", 64, 0, 1)])
    assert places == {"a": (2, 0), "b": (1, 0), "c": (3, 0)}


def test_what_does_not_fit_goes_to_its_next_space() -> None:
    options = MemoryOptions(spaces=lambda _: ("sram", "dram"), capacities={"sram": 256})
    values = [value("large", 192, 0, 9), value("small", 64, 0, 9), value("late", 64, 5, 9), value("after", 256, 10, 11)]
    places = spread(options, values)
    assert {name: number for name, (number, _) in places.items()} == {"large": 1, "small": 1, "late": 2, "after": 1}


def test_what_must_be_in_a_space_comes_before_what_may_be_elsewhere() -> None:
    options = MemoryOptions(
        spaces=lambda v: "sram" if v.name == "needed" else ("sram", "dram"), capacities={"sram": 256}
    )
    places = spread(options, [value("large", 240, 0, 9), value("needed", 128, 0, 9)])
    assert places["needed"][0] == 1 and places["large"][0] == 2


def test_reads_beyond_the_end_count_for_the_capacity() -> None:
    options = MemoryOptions(spaces=lambda _: ("sram", "dram"), capacities={"sram": 256})
    assert spread(options, [value("a", 256, 0, 9)])["a"][0] == 1
    assert spread(options, [value("a", 256, 0, 9)], overread=64)["a"][0] == 2


def test_a_space_that_is_too_small_is_refused_with_figures() -> None:
    options = MemoryOptions(spaces=lambda _: "sram", capacities={"sram": 256})
    with pytest.raises(LoweringError, match=r"space sram has 256 bytes, .* need 320 bytes at step 3: big \(256 B, st"):
        spread(options, [value("big", 256, 0, 9), value("other", 64, 3, 4)])


@pytest.mark.parametrize("answer", [None, (), 1.5, True, ("sram", None)])
def test_an_answer_that_names_no_space_is_refused(answer: object) -> None:
    with pytest.raises(LoweringError, match="spaces answered"):
        spread(MemoryOptions(spaces=lambda _: answer), [value("a", 64, 0, 1)])  # type: ignore[arg-type,return-value]


def test_a_number_that_has_a_name_already_is_refused() -> None:
    spaces: dict[str, Space] = {"a": "sram", "b": 1, "c": 0}
    options = MemoryOptions(spaces=lambda v: spaces[v.name])
    with pytest.raises(LoweringError, match="memory space 1 is 'sram' already"):
        spread(options, [value("a", 64, 0, 1), value("b", 64, 0, 1)])
    with pytest.raises(LoweringError, match="counted from 1"):
        spread(options, [value("c", 64, 0, 1)])


def test_buffers_of_several_methods_lie_in_a_space_of_their_own_and_apart_unless_they_are_shared() -> None:
    spaces = Spaces(MemoryOptions(spaces=lambda _: "fast"))
    spaces.keep(
        [(100, [("prefill", "n")]), (50, [("decode", "n")]), (200, [("prefill", "k"), ("decode", "k")])], overread=64
    )
    buffers = {name: value(name, size, 0, 9, is_buffer=True) for name, size in (("n", 100), ("k", 200))}
    first, sizes, _ = spaces.plan("prefill", [value("x", 64, 0, 1), *buffers.values()], 64)
    second, others, _ = spaces.plan("decode", [replace(buffers["n"], size=50), buffers["k"]], 0)
    assert first == [(1, 0), (2, 272), (2, 0)] and second == [(2, 208), (2, 0)]
    assert sizes == [0, 64 + 64, 272 + 112 + 64] and others == [0, 0, 272 + 64]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"planner": "quick"}, "there is no planner 'quick'"),
        ({"planner": 3}, "neither a name nor a function"),
        ({"alignment": 8}, "not a power of two of at least 16"),
        ({"alignment": 48}, "not a power of two"),
        ({"spaces": "sram"}, "not a function"),
        ({"capacities": {"sram": -1}}, "not a number of bytes"),
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        MemoryOptions(**wrong)  # type: ignore[arg-type]


@given(lifetimes=LIFETIMES, capacity=st.integers(0, 8192), alignment=ALIGNMENTS, planner=st.sampled_from([*PLANNERS]))
def test_plans_over_two_spaces_are_right(
    lifetimes: list[tuple[int, int, int]], capacity: int, alignment: int, planner: str
) -> None:
    options = MemoryOptions(planner, alignment, spaces=lambda _: ("sram", "dram"), capacities={"sram": capacity})
    values = [value(f"v{i}", size, first, first + more) for i, (size, first, more) in enumerate(lifetimes)]
    spread(options, values)
