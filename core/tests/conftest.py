"""Lets the tests of this package import their helper modules, which lie beside this file, and calls the command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

#: The most KiB that were resident in a process. `getrusage` counts those of the process that started it, too.
_PEAK = """
def peak():
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


@pytest.fixture
def grown() -> Callable[..., int]:
    """Runs a script in a process; MiB by which its peak of memory grew after its line `before = peak()`."""

    def run(script: str, *arguments: object) -> int:
        assert "before = peak()" in script
        source = f"{_PEAK}{script}\nprint((peak() - before) >> 10)\n"
        command = [sys.executable, "-c", source, *map(str, arguments)]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    return run


@pytest.fixture
def command_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], Callable[..., Any]]]:
    """Makes what calls the command in a folder with this `models.py`: gives what was printed, as `out` and `err`."""
    from delegatekit import cli as command_line

    def call(*arguments: str, code: int = 0) -> Any:
        monkeypatch.setattr(sys, "argv", ["delegatekit", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            command_line.main()
        captured = capsys.readouterr()
        assert (end.value.code or 0) == code, captured.out + captured.err
        return captured

    def make(models: str) -> Callable[..., Any]:
        (tmp_path / "models.py").write_text(models)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        return call

    yield make
    sys.modules.pop("models", None)
