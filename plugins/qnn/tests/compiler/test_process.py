"""The compiler's process: every ending is reported in the error, and nothing is left behind."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pytest
import torch

import delegatekit
from delegatekit_api import DelegateKitError, LoweringError
from delegatekit_qnn.blob.spec import options_of
from delegatekit_qnn.compiler import process
from delegatekit_qnn.compiler.process import border_of, compile_graphs
from delegatekit_qnn.compiler.requests import Constants, describe
from delegatekit_qnn.ir.graph import Graph, Node, Tensor
from delegatekit_qnn.ir.types import DataType
from delegatekit_qnn.options import QnnOptions

OPTIONS = options_of(QnnOptions(), floats=True)

#: The library's behavior, and the error message.
FAULTS = {
    "crash": ("os.kill(os.getpid(), signal.SIGSEGV)", r"crashed \(SIGSEGV\)"),
    "abort": ("os.abort()", r"crashed \(SIGABRT\)"),
    "exit": ("os._exit(7)", "ended the process with exit code 7"),
    "quiet exit": ("os._exit(0)", "made no context"),
    "nothing": ("result = b''", "compiled nothing"),
    "exception": ("raise ValueError('unknown operation')", "ended the process with exit code 1.*unknown operation"),
    "memory": ("raise MemoryError", "had not enough memory"),
}


def relu(name: str = "forward", kind: str = "Relu") -> Graph:
    graph = Graph(name)
    x = Tensor((2, 3), DataType.FLOAT32, role="input", name="input_0_x")
    y = Tensor((2, 3), DataType.FLOAT32, role="output", name="output_0_y")
    graph.inputs.append(x)
    graph.outputs.append(y)
    graph.nodes.append(Node(kind, (x,), (y,), {}, "node"))
    return graph


@pytest.mark.parametrize("fault", FAULTS)
def test_a_library_that_fails_is_an_error_that_says_how(fault: str, fake_binding: Any) -> None:
    code, said = FAULTS[fault]
    fake_binding(f"print('some words', flush=True); {code}")
    with pytest.raises(LoweringError, match=f"(?s)^Qualcomm's compiler: {said}"):
        compile_graphs([relu()], OPTIONS)


def test_the_library_s_complaints_are_shown_and_its_chatter_is_not(fake_binding: Any) -> None:
    fake_binding(
        "print('[INFO] [Qnn ExecuTorch]: all is well')\n"
        "print('[WARNING] [Qnn ExecuTorch]: Qnn API version 2.38.0 is used. The version is tested against 2.27.0.')\n"
        "print('[ERROR] [Qnn ExecuTorch]:  <E> rank 6 is too much', flush=True)\n"
        "os._exit(1)"
    )
    with pytest.raises(LoweringError) as refused:
        compile_graphs([relu()], OPTIONS)
    assert str(refused.value) == "Qualcomm's compiler: ended the process with exit code 1\n    rank 6 is too much"


def test_one_that_hangs_is_ended(
    fake_binding: Any, monkeypatch: pytest.MonkeyPatch, is_running: Callable[[int], bool]
) -> None:
    place = fake_binding("time.sleep(1000)")
    monkeypatch.setattr(process, "_SECONDS", 3.0)
    with pytest.raises(LoweringError, match="took longer than 3 s and was stopped"):
        compile_graphs([relu()], OPTIONS)
    assert not is_running(int((place / "compiling").read_text()))


def test_what_it_prints_is_not_on_stdout_and_need_not_fit_into_a_pipe(
    fake_binding: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_binding("os.write(1, b'stage 1 of 9\\n' * 300_000); os.write(2, b'more\\n' * 300_000)")
    assert bytes(compile_graphs([relu()], OPTIONS).context) == b"context"
    assert capfd.readouterr() == ("", "")


def test_nothing_is_left_in_the_folder_of_temporary_files(
    fake_binding: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    for code in ("", "os.abort()"):
        fake_binding(code)
        with pytest.raises(LoweringError) if code else nullcontext():
            compile_graphs([relu()], OPTIONS)
        assert list(folder.iterdir()) == []


def lowered(**settings: Any) -> None:
    delegatekit.lower(
        torch.nn.ReLU(),
        (torch.ones(2),),
        backends=["qnn"],
        options={"qnn": {"validate": False}},
        compiling=delegatekit.Compiling(isolate=True, cache=False, **settings),
    )


def test_the_user_s_time_limit_ends_the_library_too(fake_binding: Any, is_running: Callable[[int], bool]) -> None:
    place = fake_binding("time.sleep(1000)")
    with pytest.raises(DelegateKitError, match="took longer than 10 s"):
        lowered(seconds=10)
    assert not is_running(int((place / "compiling").read_text()))


def test_the_user_s_memory_limit_holds_for_the_library_too(fake_binding: Any) -> None:
    fake_binding("kept = [bytearray(1 << 28) for _ in range(100)]")
    with pytest.raises(DelegateKitError, match="had not enough memory"):
        lowered(memory=2 << 30)


def test_it_ends_with_the_process_that_waits_for_it(fake_binding: Any, is_running: Callable[[int], bool]) -> None:
    place = fake_binding("time.sleep(1000)")
    code = (
        "from delegatekit_qnn.compiler.process import compile_graphs\n"
        "from delegatekit_qnn.ir.graph import Graph\n"
        f"compile_graphs([Graph('forward')], {OPTIONS!r})"
    )
    waiting = subprocess.Popen([sys.executable, "-c", "import sys; sys.path[:] = " + repr(sys.path) + "\n" + code])
    try:
        assert wait_for(lambda: (place / "compiling").exists() and (place / "compiling").read_text() != "")
        number = int((place / "compiling").read_text())
        assert is_running(number)
    finally:
        waiting.kill()
        waiting.wait()
    assert wait_for(lambda: not is_running(number))


def wait_for(happened: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    return happened()


def test_what_the_library_writes_by_itself_is_neither_in_the_user_s_folder_nor_kept(
    fake_binding: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = fake_binding(
        "Path('forward_schematic.bin').write_text('traced')\n"
        "Path('other.bin').touch()\n"
        "(PLACE / 'folder').write_text(os.getcwd())"
    )
    user = tmp_path / "user"
    user.mkdir()
    monkeypatch.chdir(user)
    compile_graphs([relu()], OPTIONS)
    assert list(user.iterdir()) == []
    assert not Path((place / "folder").read_text()).exists()
    compile_graphs([relu()], OPTIONS, "asked/for")
    assert (user / "asked" / "for" / "forward_schematic.bin").read_text() == "traced"
    assert len(list((user / "asked" / "for").iterdir())) == 1
    (user / "file").touch()
    with pytest.raises(LoweringError, match="its schematic files cannot be written into file: "):
        compile_graphs([relu()], OPTIONS, "file")


# -- the vendor's library ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("library")
def test_what_the_library_refuses_is_an_error_with_its_reason() -> None:
    with pytest.raises(LoweringError, match=r"(?s)^Qualcomm's compiler: compiled nothing.*could not create op"):
        compile_graphs([relu(kind="NoSuchOperation")], OPTIONS)


@pytest.mark.usefixtures("library")
def test_schematics_are_written_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for schematics, written in (("", []), ("traces", ["traces", "traces/forward_schematic.bin"])):
        delegatekit.lower(
            torch.nn.ReLU(),
            (torch.ones(2),),
            backends=["qnn"],
            options={"qnn": {"profile": "optrace", "schematics": schematics}},
            compiling=delegatekit.Compiling(cache=False),
        )
        assert sorted(str(item.relative_to(tmp_path)) for item in tmp_path.rglob("*")) == written


@pytest.mark.usefixtures("library")
def test_the_same_graph_gives_the_same_bytes_in_every_process() -> None:
    graph = relu()
    first, second = (compile_graphs([graph], OPTIONS) for _ in range(2))
    assert bytes(first.context) == bytes(second.context)
    assert first.borders == (border_of(graph),)
    code = (
        "import sys; sys.path[:] = " + repr(sys.path) + "\n"
        "import hashlib\n"
        "from importlib.util import module_from_spec, spec_from_file_location\n"
        f"spec = spec_from_file_location('tests', {__file__!r}); tests = module_from_spec(spec)\n"
        "spec.loader.exec_module(tests)\n"
        "print(hashlib.sha256(tests.compile_graphs([tests.relu()], tests.OPTIONS).context).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert other.strip() == hashlib.sha256(first.context).hexdigest()


def test_equal_constants_are_written_once_and_each_is_found() -> None:
    graph = Graph("forward")
    data = [np.arange(5, dtype=np.float32), np.arange(5, dtype=np.float32), np.ones((3, 7), np.float32)]
    tensors = [Tensor(item.shape, DataType.FLOAT32, data=item) for item in data]
    graph.nodes.append(Node("Concat", tuple(tensors), (Tensor((1,), DataType.FLOAT32),), {}, "node"))
    constants = Constants()
    offsets = [item["offset"] for item in describe(graph, constants.offset)["tensors"] if "offset" in item]
    assert offsets[0] == offsets[1] != offsets[2]
    with TemporaryFile() as file:
        constants.write(file)
        for offset, item in zip(offsets, data, strict=True):
            file.seek(offset)
            assert file.read(item.nbytes) == item.tobytes()
