"""Lets the tests of this package import their helper modules, which lie beside this file, and calls the command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


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
