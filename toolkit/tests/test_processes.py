"""Worker processes that die, hang, print, or outlive their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delegatekit_toolkit.processes import Answering, EndedError, guarded, search_path, stop

_START = "import os, sys, time; from delegatekit_toolkit.processes import answer; answer(lambda data: {})"


def started(reply: str, seconds: float = 60.0) -> Answering:
    """A process that answers with this expression of `data`."""
    return Answering([sys.executable, "-c", _START.format(reply)], seconds=seconds, environment=search_path())


@pytest.fixture
def echo() -> Iterator[Answering]:
    """A process that returns its questions."""
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
    asker.kill()
    asker.communicate()
    assert wait_for(lambda: not runs(number))


#: Starts a process in a session of its own, and one below that; prints their process ids, then sleeps.
_FAMILY = """
import os, subprocess, sys, time
below = "import os, subprocess, sys, time; {}; print(os.getpid(), flush=True); time.sleep(1000)"
code = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
deep = f"subprocess.Popen([sys.executable, '-I', '-c', {code!r}])"
subprocess.Popen([sys.executable, "-I", "-c", below.format(deep)], start_new_session=True)
print(os.getpid(), flush=True)
"""
#: `nohup` leaves SIGHUP ignored in all its descendants.
_OWNER = """
import signal, subprocess, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from delegatekit_toolkit.processes import guarded
process = subprocess.Popen(guarded([sys.executable, "-I", "-c", sys.argv[1]]), start_new_session=True)
print(process.pid, flush=True)
time.sleep(1000)
"""


def wait_for(happened: Callable[[], bool], seconds: float = 120.0) -> bool:
    """Return whether something happens in time."""
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    return happened()


def runs(number: int) -> bool:
    """True if a process exists and has not ended."""
    try:
        return Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process in a session of its own is not found")


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda item: item.name)
def test_what_a_guarded_command_has_started_ends_with_the_process_that_started_the_command(
    number: signal.Signals,
) -> None:
    family = _FAMILY + "time.sleep(1000)"
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, family], stdout=subprocess.PIPE, env=search_path())
    assert owner.stdout is not None
    members = [int(owner.stdout.readline()) for _ in range(4)]
    assert len(set(members)) == 4 and all(map(runs, members))
    owner.send_signal(number)
    owner.wait()
    assert wait_for(lambda: not any(map(runs, members)))
    owner.stdout.close()


@linux
def test_what_a_guarded_command_leaves_ends_with_it() -> None:
    code = _FAMILY + "time.sleep(1)"  # the others may have started meanwhile or not: none is left
    process = subprocess.Popen(
        guarded([sys.executable, "-I", "-c", code]), start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    printed, _ = process.communicate(timeout=120)  # ends when the last process with the pipe ends
    assert process.returncode == 0
    assert not any(runs(int(line)) for line in printed.split())


@linux
def test_a_command_whose_guard_is_killed_ends() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
    process = subprocess.Popen(
        guarded([sys.executable, "-I", "-c", code]), start_new_session=True, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    command = int(process.stdout.readline())
    process.kill()
    process.wait()
    assert wait_for(lambda: not runs(command))
    process.stdout.close()


@pytest.mark.parametrize("code", [0, 3, -signal.SIGSEGV, -signal.SIGKILL])
def test_a_guarded_command_ends_as_it_would_alone(code: int) -> None:
    ending = f"os._exit({code})" if code >= 0 else f"os.kill(os.getpid(), {-code})"
    command = [sys.executable, "-I", "-c", f"import os, sys; print(sys.stdin.read(), flush=True); {ending}"]
    ended = subprocess.run(guarded(command), check=False, start_new_session=True, input=b"words", capture_output=True)
    assert ended.returncode == code
    assert ended.stdout.strip() == b"words"


def test_a_guarded_command_that_cannot_be_started_says_so() -> None:
    ended = subprocess.run(guarded(["/no/such/command"]), check=False, start_new_session=True, capture_output=True)
    assert ended.returncode == 127
    assert b"/no/such/command cannot be started" in ended.stderr


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_guarded_command_is_stopped_also_while_it_starts(seconds: int) -> None:
    process = subprocess.Popen(guarded([sys.executable, "-I", "-c", "import time; time.sleep(1000)"]))
    time.sleep(seconds)
    stop(process)
    stop(process)
    assert process.returncode in (-signal.SIGKILL, -signal.SIGTERM)
