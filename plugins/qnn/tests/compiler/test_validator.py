"""Questions to the library: many threads, forks, a library that dies of a question or does not work at all."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch

from delegatekit_qnn.blob.installation import find_installation
from delegatekit_qnn.blob.spec import options_of
from delegatekit_qnn.compiler import validator
from delegatekit_qnn.compiler.validator import Validator
from delegatekit_qnn.ir.graph import Graph, Node, Tensor
from delegatekit_qnn.ir.types import DataType
from delegatekit_qnn.options import QnnOptions

OPTIONS = options_of(QnnOptions(), floats=True)


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """No process and no answer of another test is used."""
    validator._conversation.cache_clear()
    yield
    validator._conversation.cache_clear()


def unary(kind: str = "Relu", rank: int = 2, size: int = 3, name: str = "x") -> Graph:
    graph = Graph("forward")
    x = Tensor((size,) * rank, DataType.FLOAT32, role="input", name=f"input_0_{name}")
    y = Tensor((size,) * rank, DataType.FLOAT32)
    graph.inputs.append(x)
    graph.nodes.append(Node(kind, (x,), (y,), {}, "node"))
    return graph


def askers(place: Path) -> list[int]:
    """The processes that were asked, once for each question."""
    return [int(line) for line in (place / "asked").read_text().split()]


@pytest.mark.usefixtures("library")
def test_the_library_gives_its_reason() -> None:
    found = Validator(OPTIONS)
    assert found.reason(unary()) is None
    reason = found.reason(unary(rank=6))
    assert reason is not None
    assert reason.startswith("Qualcomm's library refuses it: ")
    assert "rank" in reason.lower()
    # What was said about the one is not said about the next.
    other = found.reason(unary("NoSuchOperation"))
    assert other is not None
    assert "rank" not in other.lower()
    assert found.reason(unary(size=4)) is None


def test_equal_questions_are_asked_once_whatever_tensors_are_called(fake_binding: Any) -> None:
    place = fake_binding()
    assert [Validator(OPTIONS).reason(unary(name=name)) for name in "xyz"] == [None] * 3
    assert len(askers(place)) == 1


def test_many_threads_share_a_process(fake_binding: Any) -> None:
    place = fake_binding(answer="time.sleep(0.002)")
    found = Validator(OPTIONS)
    with ThreadPoolExecutor(8) as threads:
        reasons = list(threads.map(lambda size: found.reason(unary(size=size)), range(1, 101)))
    assert reasons == [None] * 100
    assert len(askers(place)) == 100
    assert len(set(askers(place))) == 1


def test_one_that_dies_is_started_anew(fake_binding: Any) -> None:
    place = fake_binding()
    found = Validator(OPTIONS)
    assert found.reason(unary(size=1)) is None
    os.kill(askers(place)[0], 9)
    assert found.reason(unary(size=2)) is None
    assert len(set(askers(place))) == 2


def test_one_that_dies_of_a_question_is_asked_twice_and_then_said_to_have_died(fake_binding: Any) -> None:
    place = fake_binding(answer="os.abort()")
    found = Validator(OPTIONS)
    for _ in range(2):
        assert found.reason(unary()) == "Qualcomm's compiler crashed (SIGABRT) when it was asked about it"
    assert len(askers(place)) == 2
    fake_binding()
    assert found.reason(unary(size=5)) is None


def test_one_that_hangs_is_ended(fake_binding: Any, monkeypatch: MonkeyPatch) -> None:
    fake_binding(answer="time.sleep(1000)")
    monkeypatch.setattr(validator, "_SECONDS", 0.5)
    reason = Validator(OPTIONS).reason(unary())
    assert reason == "Qualcomm's compiler took longer than 0.5 s and was stopped when it was asked about it"


def test_a_library_that_does_not_work_is_asked_once(fake_binding: Any) -> None:
    place = fake_binding()
    (place / "2.99.0" / "lib" / "x86_64-linux-clang" / "libQnnSystem.so").unlink()
    found = Validator(OPTIONS)
    for size in (1, 2):
        reason = found.reason(unary(size=size))
        assert reason is not None
        assert "does not work here: cannot be loaded: " in reason
        assert "libQnnSystem.so" in reason


def test_a_fork_has_a_process_of_its_own(fake_binding: Any) -> None:
    place = fake_binding()
    found = Validator(OPTIONS)
    assert found.reason(unary(size=1)) is None
    # As if another thread were asking while the process is forked.
    with validator._conversation(find_installation(), OPTIONS)._lock:
        child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if found.reason(unary(size=2)) is None else 2
            finally:
                os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert found.reason(unary(size=3)) is None
    first, second, third = askers(place)
    assert first == third != second


def test_it_ends_when_nobody_asks_any_more(fake_binding: Any, is_running: Callable[[int], bool]) -> None:
    place = fake_binding()
    first, second = Validator(OPTIONS), Validator(OPTIONS)
    assert first.reason(unary()) is second.reason(unary()) is None
    (number,) = askers(place)
    del first
    gc.collect()
    assert is_running(number)
    del second
    gc.collect()
    assert not is_running(number)
