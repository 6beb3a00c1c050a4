"""The runtime hook: blobs on the simulator, blobs refused before the library sees them, and its errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit.plugins import get_backend
from delegatekit.plugins.apart import end_all
from delegatekit_api import (
    CompileSpec,
    DelegatePayload,
    DelegateRuntime,
    ExecutionError,
    FormatError,
    RuntimeUnavailableError,
)
from delegatekit_qnn.blob.header import Blob, read_blob, write_blob
from delegatekit_qnn.blob.installation import SDK, Installation, find_installation
from delegatekit_qnn.blob.spec import KEY, options_of
from delegatekit_qnn.compiler.process import border_of, compile_graphs
from delegatekit_qnn.options import QnnOptions

pytestmark = pytest.mark.usefixtures("library")

X = torch.linspace(-1, 1, 4).reshape(1, 4)


@pytest.fixture
def payload(payload_of: Any, layer: Any) -> DelegatePayload:
    found: DelegatePayload = payload_of(layer, (X,))
    return found


@pytest.fixture
def runtime() -> DelegateRuntime:
    """In a process of its own, as in the core, without delegates of other tests."""
    end_all()
    return get_backend("qnn").create_runtime()


def unreachable(keys: Any) -> bytes:
    raise AssertionError("was handed on")


def test_it_is_available_here(runtime: DelegateRuntime) -> None:
    assert runtime.is_available().available


def test_results_are_written_into_the_caller_s_tensors(
    runtime: DelegateRuntime, payload: DelegatePayload, layer: Any
) -> None:
    handle = runtime.init(payload)
    output = torch.empty(1, 3)
    for scale in (1.0, -2.0, 0.5):
        runtime.execute(handle, [X * scale], [output])
        torch.testing.assert_close(output, layer(X * scale).detach(), atol=2e-3, rtol=2e-3)
    runtime.destroy(handle)
    runtime.destroy(handle)
    with pytest.raises(ExecutionError, match="was destroyed"):
        runtime.execute(handle, [X], [output])


@pytest.mark.parametrize("level", ["off", "optrace"])
def test_it_tells_what_each_operation_took(level: str, runtime: Any, payload_of: Any) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3)).eval()
    payload = payload_of(module, (X,), profile=level)
    handle, other = runtime.init(payload), runtime.init(payload)
    output, plain = torch.empty(1, 3), torch.empty(1, 3)
    for scale in (1.0, -2.0):
        operators = runtime.profile(handle, [X * scale], [output])
        names = [item.name for item in operators]
        assert [name for name in names if name not in ("Input", "Output", "Reshape")] == [
            "FullyConnected",
            "Tanh",
            "FullyConnected",
        ]
        keys = [str(item.key) for item in operators]
        assert len(set(keys)) == len(keys)
        assert all(key.startswith(name) for key, name in zip(keys, names, strict=True))
        assert sum(item.seconds for item in operators) > 0 <= min(item.seconds for item in operators)
        for each in (handle, other):
            runtime.execute(each, [X * scale], [plain])
            assert torch.equal(plain, output)
    runtime.destroy(handle)
    with pytest.raises(ExecutionError, match="was destroyed"):
        runtime.profile(handle, [X], [output])
    runtime.destroy(other)


def test_what_operations_took_is_traced_to_lines(layer: Any) -> None:
    program = delegatekit.lower(layer, (X,), backends=["qnn"])
    method = delegatekit.load(program.buffer)["forward"]
    profile = delegatekit.profile(method, (X,), runs=2, debug_map=program.debug_map())
    (instruction,) = profile.instructions
    (found,) = [item for item in instruction.operators if item.name == "FullyConnected"]
    assert found.origin.operators == ("aten.linear.default",)


def test_handles_of_one_file_are_used_in_several_threads(
    runtime: DelegateRuntime, payload: DelegatePayload, layer: Any
) -> None:
    def use(number: int) -> int:
        generator = torch.Generator().manual_seed(number)
        handle = runtime.init(payload)
        output = torch.empty(1, 3)
        right = 0
        for _ in range(20):
            x = torch.randn(1, 4, generator=generator)
            runtime.execute(handle, [x], [output])
            right += torch.allclose(output, layer(x), atol=5e-3)
        runtime.destroy(handle)
        return right

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(use, range(4))) == [20] * 4


def test_what_the_library_says_of_a_context_is_in_the_error(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "delegatekit_qnn.compile.compile_graphs",
        lambda graphs, *more: Blob(
            bytes(compile_graphs(graphs, *more).context)[:20000], "2.49.40", tuple(map(border_of, graphs))
        ),
    )
    program = delegatekit.lower(layer, (X,), backends=["qnn"], compiling=delegatekit.Compiling(cache=False))
    with pytest.raises(FormatError, match=r"(?s)refused the context.*\n    .*Error code 30010.*Error 1002") as bad:
        assert delegatekit.load(program.buffer)["forward"]
    assert "[ERROR]" not in str(bad.value)


def test_a_library_whose_version_is_not_known_runs_what_it_can(
    layer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_of: Any
) -> None:
    file = file_of(layer, (X,))
    found = find_installation()
    assert isinstance(found, Installation)
    (tmp_path / "sdk" / "lib").mkdir(parents=True)
    (tmp_path / "sdk" / "lib" / "x86_64-linux-clang").symlink_to(found.folder)
    monkeypatch.setenv(SDK, str(tmp_path / "sdk"))
    end_all()
    try:
        result = delegatekit.load(file)["forward"](X)
    finally:
        end_all()
    torch.testing.assert_close(result, layer(X).detach(), atol=2e-3, rtol=2e-3)


def test_wrong_arguments_are_errors(runtime: DelegateRuntime, payload: DelegatePayload) -> None:
    handle = runtime.init(payload)
    for inputs, outputs in (([torch.ones(1, 5)], [torch.empty(1, 3)]), ([X], [torch.empty(3)]), ([X], [])):
        with pytest.raises(ExecutionError):
            runtime.execute(handle, inputs, outputs)
    runtime.destroy(handle)


def test_the_simulator_is_one_chip_at_a_time(
    runtime: DelegateRuntime, payload_of: Any, payload: DelegatePayload, layer: Any
) -> None:
    small = payload_of(layer, (X,), vtcm=2)
    handle = runtime.init(payload)
    with pytest.raises(RuntimeUnavailableError, match=r"SM8650 with 2 MB .* SM8650 with 8 MB") as refused:
        runtime.init(small)
    assert "another process" in str(refused.value)
    runtime.destroy(handle)
    handle = runtime.init(small)
    output = torch.empty(1, 3)
    runtime.execute(handle, [X], [output])
    torch.testing.assert_close(output, layer(X).detach(), atol=2e-3, rtol=2e-3)
    runtime.destroy(handle)


def changed(data: bytes, place: int) -> memoryview:
    damaged = bytearray(data)
    damaged[place] ^= 1
    return memoryview(damaged)


def test_damage_is_refused_before_the_library_sees_it(runtime: DelegateRuntime, payload: DelegatePayload) -> None:
    blob = bytes(payload.blob)
    spec = options_of(QnnOptions(), floats=True)
    for change in (
        *({"blob": changed(blob, place)} for place in (0, 5, 13, 21, 25, 30, 61, 70, 255, 256, 5000, len(blob) - 1)),
        {"blob": memoryview(blob[:-1])},
        {"compile_specs": ()},
        {"compile_specs": (CompileSpec(KEY, spec[:50]),)},
        {"compile_specs": (*payload.compile_specs, CompileSpec("other", b""))},
        {"method": "prefill"},
        {"inputs": (replace(payload.inputs[0], shape=(1, 5)),)},
        {"inputs": ()},
        {"outputs": (replace(payload.outputs[0], dtype="int32"),)},
        {"outputs": (*payload.outputs, payload.outputs[0])},
        {"numbers": (0,)},
    ):
        with pytest.raises(FormatError):
            runtime.init(replace(payload, as_program=unreachable, **change))


def test_a_newer_library_s_blob_is_refused_with_that_reason(runtime: DelegateRuntime, payload: DelegatePayload) -> None:
    known = read_blob(payload.blob)
    newer = write_blob(Blob(known.context, "2.51.0", known.borders))
    with pytest.raises(FormatError, match=r"compiled by QNN 2\.51\.0, and here is 2\.49\.40") as refused:
        runtime.init(replace(payload, blob=memoryview(newer), as_program=unreachable))
    assert "older library" in str(refused.value)


#: Runs a program made of a payload's bytes: the library does not recover from a refused context.
REFUSED = """
import sys; sys.path[:] = {path!r}
from pathlib import Path
from delegatekit_api import FormatError
from delegatekit_api import DelegatePayload, TensorSpec, CompileSpec
from delegatekit_qnn.runtime import QnnRuntime
blob, program, spec = (Path({folder!r}, name).read_bytes() for name in ("blob", "program", "spec"))
sides = [(TensorSpec("float32", shape),) for shape in ((1, 4), (1, 3))]
payload = DelegatePayload(
    "QnnBackend", memoryview(blob), (CompileSpec({key!r}, spec),), *sides, {{}}, lambda keys: program, (), "forward")
try:
    QnnRuntime().init(payload)
except FormatError as error:
    print(error)
"""


def test_what_only_the_library_refuses_is_a_format_error_too(payload: DelegatePayload, tmp_path: Path) -> None:
    whole, known = bytes(payload.blob), read_blob(payload.blob)
    cut = write_blob(replace(known, context=known.context[:-4096]))
    program = payload.as_program(()).replace(whole, cut.ljust(len(whole), b"\0"))
    for name, data in (("blob", cut), ("program", program), ("spec", payload.compile_specs[0].value)):
        (tmp_path / name).write_bytes(data)
    code = REFUSED.format(path=sys.path, folder=str(tmp_path), key=KEY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "does not load: internal error: Qualcomm's library refused the context" in done.stdout


def test_neither_stdout_nor_stderr_has_the_library_s_chatter(file_of: Callable[..., bytes], tmp_path: Any) -> None:
    file = tmp_path / "model.pte"
    file.write_bytes(file_of(torch.nn.ReLU(), (X,)))
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "import torch, delegatekit\n"
        f"method = delegatekit.load({str(file)!r})['forward']\n"
        "print(method(torch.tensor([[-1.0, 0.0, 1.0, 2.0]])).round().tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[[0.0, 0.0, 1.0, 2.0]]\n"
    assert "INFO" not in done.stderr and "LIBNATIVE" not in done.stderr
