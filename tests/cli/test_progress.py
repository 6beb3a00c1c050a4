"""Progress of commands on stderr: a line that changes on a terminal, and elsewhere a line for each stage."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest

from delegatekit.cli import console
from delegatekit.text.terminal import Terminal


@pytest.fixture
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_LINES", {"after": 0.0, "every": 60.0, "pause": 60.0})
    monkeypatch.setattr(console, "_CHANGING", {"after": 0.0, "every": 0.1, "pause": 0.0})


@pytest.mark.usefixtures("told_at_once")
def test_each_stage_has_a_line_where_there_is_no_terminal(cli: Any) -> None:
    found = cli("lower", "models:linear", "-b", "nothing", "-o", "linear.pte")
    stages = [line.split(",")[0] for line in found.stderr.splitlines() if line.endswith(", 0 s")]
    assert stages[0] == "starting"
    assert stages[-1] == "emit forward"
    assert {"export forward", "edge forward", "partition forward", "lower forward"} <= set(stages)
    assert "forward, " not in found.stdout
    assert "run, 0 s" in cli("run", "linear.pte").stderr.splitlines()


@pytest.mark.usefixtures("told_at_once")
def test_quantize_tells_how_many_samples_are_done(cli: Any) -> None:
    pytest.importorskip("torchao")
    code = ("quantize", "models:linear", "-b", "xnnpack", "--random", "3", "-o", "linear.pt2")
    assert "calibrate forward, 0 s" in cli(*code).stderr


def test_short_commands_tell_nothing(cli: Any) -> None:
    assert "export" not in cli("lower", "models:linear", "-b", "nothing", "-o", "linear.pte").stderr


@pytest.mark.usefixtures("told_at_once")
def test_a_terminal_shows_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(console, "err", Terminal(file=stream, force_terminal=True, width=80))
    with console.progress() as waiting:
        waiting.begin("lower forward")
        waiting.moved(3, 8)
        end = time.monotonic() + 20
        while "lower forward 3/8" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.05)
    shown = stream.getvalue()
    assert "lower forward 3/8" in shown
    assert shown.endswith("\x1b[2K") or "\x1b[2K" in shown[shown.rindex("lower forward") :]
