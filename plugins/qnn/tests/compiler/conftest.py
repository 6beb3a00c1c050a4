"""A configurable binding in place of ExecuTorch's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from delegatekit_qnn.blob import installation

#: The replacement of PyQnnManagerAdaptor: it runs the code of FAULT when the library would compile.
BINDING = """
import ctypes, os, signal, sys, time
from pathlib import Path
PLACE = Path({place!r})
class Error:
    Ok = 0
with (PLACE / "started").open("a") as file:
    print(os.getpid(), file=file)
exec((PLACE / "start").read_text())
class _Any:
    def __init__(self, *arguments): pass
    def __getattr__(self, name): return lambda *arguments: self
class _Names:
    def __getattr__(self, name): return name
Qnn_TensorType_t = Qnn_QuantizationEncoding_t = Qnn_DataType_t = _Names()
TensorWrapper = PyQnnOpWrapper = _Any
class QnnManager:
    def __init__(self, options): pass
    def InitBackend(self): return 0
    def InitContext(self, names): return 0
    def Compile(self, names, operations):
        (PLACE / "compiling").write_text(str(os.getpid()))
        scope = {{"result": b"\\0" * 256 + b"context"}}
        exec((PLACE / "fault").read_text(), globals(), scope)
        return scope["result"]
    def IsNodeSupportedByBackend(self, operations):
        with (PLACE / "asked").open("a") as file:
            print(os.getpid(), file=file)
        scope = {{"answer": True}}
        exec((PLACE / "answer").read_text(), globals(), scope)
        return scope["answer"]
"""

#: fake_binding(fault, answer, start): from now on the worker runs this code when the library compiles, validates, or is
#: loaded.
FakeBinding = Callable[..., Path]


@pytest.fixture
def fake_binding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBinding:
    """Installs it; returns the folder with the files `compiling`, `asked` and `started`, which record the processes."""
    folder = tmp_path / "packages" / "executorch" / "backends" / "qualcomm" / "python"
    folder.mkdir(parents=True)
    (folder / "PyQnnManagerAdaptor.py").write_text(BINDING.format(place=str(tmp_path)))
    for path in (folder, *list(folder.parents)[:3]):
        (path / "__init__.py").touch()
    libraries = tmp_path / "2.99.0" / "lib" / "x86_64-linux-clang"
    libraries.mkdir(parents=True)
    for name in ("libQnnHtp.so", "libQnnSystem.so"):
        (libraries / name).symlink_to("/lib/x86_64-linux-gnu/libm.so.6")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.setenv(installation.SDK, str(tmp_path / "2.99.0"))

    def install(fault: str = "", answer: str = "", start: str = "") -> Path:
        (tmp_path / "start").write_text(start)
        (tmp_path / "fault").write_text(fault)
        (tmp_path / "answer").write_text(answer)
        return tmp_path

    install()
    return install


@pytest.fixture
def is_running() -> Callable[[int], bool]:
    """Return whether a process exists and is no zombie."""

    def found(number: int) -> bool:
        try:
            return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    assert found(os.getpid())
    return found
