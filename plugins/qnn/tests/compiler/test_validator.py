"""Questions to the library: many threads, forks, a library that dies on a question or does not work at all."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from pytest import MonkeyPatch

import delegatekit
from delegatekit_api import LoweringError
from delegatekit_qnn import plugin
from delegatekit_qnn.blob.installation import LIBRARIES, SDK, Installation, find_installation
from delegatekit_qnn.blob.spec import options_of
from delegatekit_qnn.compiler import conversation
from delegatekit_qnn.compiler.validator import Validator
from delegatekit_qnn.ir.graph import Graph, Node, Tensor
from delegatekit_qnn.ir.types import DataType
from delegatekit_qnn.options import QnnOptions

OPTIONS = options_of(QnnOptions(), floats=True)


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """Processes and answers of other tests are not reused."""
    conversation.conversation.cache_clear()
    yield
    conversation.conversation.cache_clear()


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
    # The output about one question is not repeated for the next.
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
    place = fake_binding()
    found = Validator(OPTIONS)
    assert found.reason(unary(size=2)) is None
    fake_binding(answer="time.sleep(1000)")
    monkeypatch.setattr(conversation, "_SECONDS", 0.5)
    os.kill(askers(place)[0], 9)
    reason = found.reason(unary())
    assert reason == "Qualcomm's compiler took longer than 0.5 s and was stopped when it was asked about it"


def test_a_library_that_does_not_work_is_started_once_and_not_asked(fake_binding: Any) -> None:
    place = fake_binding(start="raise SystemExit(3)")
    found = Validator(OPTIONS)
    for size in (1, 2):
        assert found.reason(unary(size=size)) is None
    assert not (place / "asked").exists()
    assert len((place / "started").read_text().split()) == 2
    fault = conversation.conversation(find_installation(), OPTIONS).fault()
    assert fault is not None
    assert fault.reason.endswith("ended the process with exit code 3 when it was started")


#: Faults at the library's start, their messages, and the remedies.
FAULTS = {
    "libatomic": (
        "raise ImportError('libatomic.so.1: cannot open shared object file: No such file or directory')",
        "cannot be imported: libatomic.so.1: cannot open shared object file",
        "apt-get install libatomic1",
    ),
    "glibc": (
        'raise ImportError("/lib/libc.so.6: version `GLIBC_2.38\' not found (required by libexecutorch.so)")',
        "version `GLIBC_2.38' not found",
        "use a newer distribution",
    ),
    "binding": ("import no_such_module", "needs PyQnnManagerAdaptor, which cannot be imported", "executorch==1.5.1"),
    "version": (
        "print('[ERROR] [Qnn ExecuTorch]: unknown custom config socModel 0', file=sys.stderr)\nError.Ok = 1",
        "could not create its backend or device (unknown custom config socModel 0)",
        "unset QNN_SDK_ROOT, or name such an SDK",
    ),
    "crash": ("os.kill(os.getpid(), signal.SIGBUS)", "crashed (SIGBUS) when it was started", "correct QNN_SDK_ROOT"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("validate", [True, False])
def test_a_library_that_does_not_work_is_one_error_before_any_work(
    fault: str, validate: bool, fake_binding: Any
) -> None:
    code, reason, hint = FAULTS[fault]
    fake_binding(start=code)
    module = torch.nn.ReLU()
    module.forward = None  # type: ignore[assignment]  # exporting it would be work
    with pytest.raises(LoweringError) as refused:
        delegatekit.lower(module, (torch.ones(2),), backends=["qnn"], options={"qnn": {"validate": validate}})
    assert str(refused.value).startswith("backend qnn: cannot compile here: Qualcomm's library in ")
    assert reason in str(refused.value)
    assert hint in str(refused.value)


@pytest.mark.parametrize("validate", [True, False])
def test_asking_whether_it_works_leaves_a_process_only_for_questions(
    validate: bool, fake_binding: Any, is_running: Callable[[int], bool]
) -> None:
    place = fake_binding()
    options = QnnOptions(validate=validate)
    assert plugin.compiler_availability(options).available
    (number,) = map(int, (place / "started").read_text().split())
    assert is_running(number) is validate
    if validate:
        assert Validator(OPTIONS).reason(unary()) is None
        assert askers(place) == [number]


def linked(place: Path, *sources: Path) -> Path:
    """A folder like an SDK's, with links to files."""
    folder = place / "sdk" / "lib" / "x86_64-linux-clang"
    folder.mkdir(parents=True)
    for item in sources:
        (folder / item.name).symlink_to(item)
    return place / "sdk"


@pytest.mark.parametrize("lacking", ["libQnnSystem.so", "what they need", "their bytes"])
def test_a_folder_with_a_part_of_the_library_says_what_is_not_there(
    lacking: str, library: None, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    found = find_installation()
    assert isinstance(found, Installation)
    # (The system's loader searches their dependencies beside the link.)
    sources = [found.folder / name for name in LIBRARIES if name != lacking]
    if lacking == "their bytes":
        sources = [tmp_path / name for name in LIBRARIES]
        for item in sources:
            item.write_bytes((found.folder / item.name).read_bytes()[:60])
    monkeypatch.setenv(SDK, str(linked(tmp_path, *sources)))
    available = plugin.compiler_availability(QnnOptions())
    assert not available.available
    said = {"libQnnSystem.so": "there is no .*libQnnSystem.so", "what they need": "cannot open shared object file"}
    assert re.search(said.get(lacking, "cannot be loaded: .*(too short|truncated|header)"), available.reason)
    assert available.reason.endswith("correct QNN_SDK_ROOT, or unset it")


def test_a_fork_has_a_process_of_its_own(fake_binding: Any) -> None:
    place = fake_binding()
    found = Validator(OPTIONS)
    assert found.reason(unary(size=1)) is None
    # As if another thread were asking while the process is forked.
    with conversation.conversation(find_installation(), OPTIONS)._lock:
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
