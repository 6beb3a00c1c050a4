"""The runner survives any worker. The workers here are scripts, so that each fault is exactly the one named."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from delegatekit_conformance import runner
from delegatekit_conformance.runner import run_cases, run_isolated
from delegatekit_conformance.verdicts import Outcome, Verdict

UseScript = Callable[[str], None]
#: Writes a sound result; `name` is the case and `path` the file for it.
SUCCEED = f"open(path, 'w').write({json.dumps(Outcome('?', Verdict.DELEGATED).to_json())!r}.replace('?', name))"


@pytest.fixture
def use_script(monkeypatch: pytest.MonkeyPatch) -> UseScript:
    def use(script: str) -> None:
        code = f"import os, signal, subprocess, sys, time\nname, path = sys.argv[1:]\n{script}"
        monkeypatch.setattr(runner, "_command", lambda _, name, path: [sys.executable, "-c", code, name, str(path)])

    return use


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie, too, has ended)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_the_run_goes_on_after_crashes_and_hangs(use_script: UseScript) -> None:
    use_script(
        f"if name == 'crash': os.kill(os.getpid(), signal.SIGABRT)\nif name == 'hang': time.sleep(1000)\n{SUCCEED}"
    )
    outcomes = {outcome.case: outcome for outcome in run_cases("any", ["crash", "hang", "a", "b"], jobs=2, timeout=2)}
    assert {name: outcome.verdict for name, outcome in outcomes.items()} == {
        "crash": Verdict.CRASH,
        "hang": Verdict.TIMEOUT,
        "a": Verdict.DELEGATED,
        "b": Verdict.DELEGATED,
    }
    assert "signal SIGABRT" in outcomes["crash"].detail
    assert "2 s" in outcomes["hang"].detail


def test_jobs_run_at_the_same_time(use_script: UseScript, tmp_path: Path) -> None:
    # Each worker waits for the other one: alone, neither would end.
    use_script(
        f"folder = {str(tmp_path)!r}\nopen(folder + '/' + name, 'w').close()\n"
        f"while len(os.listdir(folder)) < 2: time.sleep(0.02)\n{SUCCEED}"
    )
    outcomes = list(run_cases("any", ["a", "b"], jobs=2, timeout=20))
    assert [outcome.verdict for outcome in outcomes] == [Verdict.DELEGATED] * 2


def test_a_flood_of_output_neither_blocks_nor_fills_memory(use_script: UseScript) -> None:
    use_script(
        "for stream in (sys.stdout, sys.stderr):\n    stream.write('noise ' * 1_000_000)\n"
        "sys.stderr.write('the last words')\nsys.stderr.flush()\nos._exit(7)"
    )
    outcome = run_isolated("any", "case", timeout=20)
    assert outcome.verdict is Verdict.CRASH
    assert "exit status 7" in outcome.detail
    assert outcome.detail.endswith("the last words")
    assert len(outcome.detail) < 1000


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see whether the process has ended")
def test_a_timeout_ends_what_the_worker_started(use_script: UseScript, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    use_script(
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\ntime.sleep(1000)"
    )
    start = time.monotonic()
    outcome = run_isolated("any", "case", timeout=2)
    assert outcome.verdict is Verdict.TIMEOUT
    assert time.monotonic() - start < 15
    assert wait_until(lambda: gone(int(note.read_text())))


def test_a_child_that_keeps_stderr_open_does_not_hold_up_the_run(use_script: UseScript, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    use_script(
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\nos._exit(5)"
    )
    start = time.monotonic()
    try:
        outcome = run_isolated("any", "case", timeout=40)
        assert outcome.verdict is Verdict.CRASH
        assert time.monotonic() - start < 30
    finally:
        os.kill(int(note.read_text()), 9)


def test_a_crash_after_the_result_is_still_a_crash(use_script: UseScript) -> None:
    use_script(f"{SUCCEED}\nos.kill(os.getpid(), signal.SIGKILL)")
    outcome = run_isolated("any", "case", timeout=20)
    assert outcome.verdict is Verdict.CRASH
    assert "after the result" in outcome.detail


def test_closing_the_run_ends_its_workers(use_script: UseScript, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    use_script(
        f"if name == 'hang':\n    open({str(note)!r}, 'w').write(str(os.getpid()))\n    time.sleep(1000)\n"
        # The other one ends once the hanging one has begun.
        f"while not os.path.exists({str(note)!r}): time.sleep(0.02)\n{SUCCEED}"
    )
    running = run_cases("any", ["hang", "quick", "never"], jobs=2, timeout=600)
    assert next(running).case == "quick"
    closer = threading.Thread(target=running.close, daemon=True)
    closer.start()
    closer.join(20)
    assert not closer.is_alive()
    if Path("/proc/self/stat").exists():
        assert wait_until(lambda: gone(int(note.read_text())))
