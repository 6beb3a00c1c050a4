"""Calls that are timed: how many, in what order, and how long it may take."""

from __future__ import annotations

import time
from functools import partial

from delegatekit_tools.placement.rounds import times_alone, times_in_rounds


def test_a_call_alone_is_repeated_until_there_is_no_time_left() -> None:
    assert len(times_alone(lambda: None, cpu=False, runs=5, warm_up=2, seconds=60)) == 5
    slow = times_alone(lambda: time.sleep(0.05), cpu=False, runs=50, warm_up=3, seconds=0.12)
    assert len(slow) <= 1 and min(slow) >= 0.05
    assert len(times_alone(lambda: time.sleep(0.02), cpu=False, runs=5, warm_up=3, seconds=0)) == 1


def test_calls_follow_each_other_and_every_other_round_goes_backwards() -> None:
    order: list[str] = []
    calls = [partial(order.append, name) for name in "abc"]
    found = times_in_rounds(calls, cpu=False, runs=4, seconds=0)
    assert [len(times) for times in found] == [3, 3, 3]  # the least, as there is no time
    assert "".join(order) == "aaabbbccc" + "cccbbbaaa" + "aaabbbccc"


def test_short_calls_have_more_rounds() -> None:
    (found,) = times_in_rounds([lambda: None], cpu=False, runs=4, seconds=60)
    assert len(found) == 40


def test_cpu_time_does_not_count_sleep() -> None:
    (cpu,), (wall,) = (
        times_in_rounds([partial(time.sleep, 0.01)], cpu=cpu, runs=3, seconds=0) for cpu in (True, False)
    )
    assert max(cpu) < 0.01 <= min(wall)
