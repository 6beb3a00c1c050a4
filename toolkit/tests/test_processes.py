"""Processes that answer: what becomes of those that die, hang, print, or outlive the one that asked."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from delegatekit_toolkit.processes import Answering, EndedError, search_path

_START = "import os, sys, time; from delegatekit_toolkit.processes import answer; answer(lambda data: {})"


def started(reply: str, seconds: float = 60.0) -> Answering:
    """A process that answers with this expression of `data`."""
    return Answering([sys.executable, "-c", _START.format(reply)], seconds=seconds, environment=search_path())


@pytest.fixture
def echo() -> Iterator[Answering]:
    """A process that gives back what it is asked."""
    process = started("data")
    yield process
    process.end()


def test_messages_of_any_length_come_back(echo: Answering) -> None:
    for size in (0, 1, 1 << 22):
        message = os.urandom(size)
        assert echo.ask(message) == message


@pytest.mark.parametrize(
    ("reply", "how"),
    [
        ("os.abort()", r"^crashed \(SIGABRT\)$"),
        ("os._exit(3)", "^ended the process with exit code 3$"),
        ("undefined", "^ended the process with exit code 1$"),
        ("os.close(1) or os._exit(0)", "^ended the process with exit code 0$"),
    ],
)
def test_one_that_ends_instead_says_how(reply: str, how: str) -> None:
    process = started(reply)
    with pytest.raises(EndedError, match=how):
        process.ask(b"x")
    assert not process.alive
    with pytest.raises(EndedError, match=how):
        process.ask(b"x")


def test_one_that_takes_too_long_is_stopped() -> None:
    process = started("time.sleep(1000)", seconds=0.5)
    with pytest.raises(EndedError, match=r"^took longer than 0\.5 s and was stopped$"):
        process.ask(b"x")
    assert not process.alive


def test_what_is_printed_is_no_answer() -> None:
    process = started("os.write(1, b'words' * 100) and b'answer'")
    assert process.ask(b"x") == b"answer"
    process.end()


def test_it_ends_with_the_last_reference() -> None:
    process = started("str(os.getpid()).encode()")
    number = int(process.ask(b""))
    del process
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_leaves_it_to_the_process_that_started_it(echo: Answering) -> None:
    child = os.fork()
    if not child:
        code = 0 if echo.foreign else 1
        echo.end()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not echo.foreign and echo.ask(b"still") == b"still"


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_one_that_hangs_ends_although_who_asked_was_killed() -> None:
    asking = (
        "import os, sys; from delegatekit_toolkit.processes import Answering\n"
        "process = Answering([sys.executable, '-c', sys.argv[1]], seconds=0.2)\n"
        "print(process._process.pid, flush=True)\n"
        "import threading; threading.Timer = lambda *_: threading.Thread()\n"
        "process.ask(b'')"
    )
    hanging = _START.format("time.sleep(1000)")
    asker = subprocess.Popen([sys.executable, "-c", asking, hanging], stdout=subprocess.PIPE, env=search_path())
    assert asker.stdout is not None
    number = int(asker.stdout.readline())
    time.sleep(0.5)
    asker.kill()
    asker.communicate()
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{number}") and time.monotonic() < end:  # noqa: PTH110
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
