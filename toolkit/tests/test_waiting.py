"""Progress for those who wait: told from a while on, at each stage, with the time that is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from delegatekit_toolkit.waiting import Waiting


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    yield Clock()


def waiting(told: list[str], clock: Clock, *, after: float = 10.0, pause: float = 0.0) -> Waiting:
    """One whose thread is not started: only stages and progress tell."""
    return Waiting(told.append, after=after, every=1e6, pause=pause, clock=clock)


def test_short_work_is_not_told(clock: Clock) -> None:
    told: list[str] = []
    found = waiting(told, clock)
    found.begin("export forward")
    clock.now += 9.9
    found.begin("lower forward")
    found.moved(1, 2)
    assert told == []


def test_stages_are_told_from_a_while_on(clock: Clock) -> None:
    told: list[str] = []
    found = waiting(told, clock)
    found.begin("export forward")
    clock.now += 11
    found.begin("partition forward")
    found.begin("lower forward")
    assert told == ["partition forward, 0 s", "lower forward, 0 s"]


def test_the_time_that_is_left_follows_from_what_is_done(clock: Clock) -> None:
    told: list[str] = []
    found = waiting(told, clock, after=0.0)
    found.begin("lower forward")
    clock.now += 30
    found.moved(10, 50)
    assert told[-1] == "lower forward 10/50, 30 s, about 2 min 0 s left"
    clock.now += 120
    found.moved(50, 50)
    assert told[-1] == "lower forward 50/50, 2 min 30 s"
    found.begin("emit forward")
    assert told[-1] == "emit forward, 0 s"


def test_changes_within_a_stage_are_told_after_a_pause_only(clock: Clock) -> None:
    told: list[str] = []
    found = waiting(told, clock, after=0.0, pause=60.0)
    found.begin("lower forward")
    for done in range(1, 131):
        clock.now += 1
        found.moved(done, 200)
    assert [text.split(",")[0] for text in told] == ["lower forward", "lower forward 60/200", "lower forward 120/200"]


def test_a_stage_that_reports_nothing_is_told_all_the_same() -> None:
    told: list[str] = []
    several = threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == 3:
            several.set()

    with Waiting(tell, after=0.1, every=0.1) as found:
        found.begin("export forward")
        assert several.wait(20)
    count = len(told)
    time.sleep(0.3)
    assert len(told) == count and {text.split(",")[0] for text in told} == {"export forward"}


def test_stages_that_are_over_at_once_are_not_told() -> None:
    told: list[str] = []
    first, second = threading.Event(), threading.Event()

    def tell(text: str) -> None:
        told.append(text.split(",", maxsplit=1)[0])
        (first if len(told) == 1 else second).set()

    with Waiting(tell, after=0.0, every=60.0, brief=0.5) as found:
        found.begin("export forward")
        assert first.wait(20)
        for number in range(20):
            found.begin(f"lower part {number}")
        found.begin("lower forward")
        assert second.wait(20)
    assert told == ["export forward", "lower forward"]


def test_the_thread_ends_with_the_work() -> None:
    before = threading.active_count()
    with pytest.raises(KeyError), Waiting(print, after=5.0, every=5.0) as found:
        found.begin("export")
        raise KeyError
    assert threading.active_count() == before
