"""The runtime hook: a payload in, tensors in and out; the choice of its engine, and the reasons if there is none."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from stream_case import Case
from stream_graphs import draw
from stream_networks import build

from delegatekit_api import (
    Availability,
    CompileSpec,
    DelegatePayload,
    ExecutionError,
    FormatError,
    RuntimeUnavailableError,
    TensorSpec,
)
from delegatekit_ethosu.blob import DELEGATE_ID, TOSA_SPEC, pack, tosa_key, unpack
from delegatekit_ethosu.compiler import compile_program
from delegatekit_ethosu.options import EthosUOptions
from delegatekit_ethosu.runtime.host import EthosURuntime
from delegatekit_ethosu.runtime.stream import decompressor
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import DType, Graph, reference
from delegatekit_toolkit.tosa.isolated import POOL, Isolated
from delegatekit_toolkit.tosa.reader import read

pytest.importorskip("tosa_reference_model", reason="tosa-tools is not installed")
pytest.importorskip("ethosu.regor", reason="ethos-u-vela is not installed")

_DTYPES = {DType.INT8: "int8", DType.INT16: "int16", DType.INT32: "int32"}


def payload(program: bytes, target: str = "ethos-u55-128", *, sidecar: bool = False) -> DelegatePayload:
    """A compiled program in the form that a runtime receives."""
    graph = read(program)
    key = tosa_key(program)
    named = {key: memoryview(program)} if sidecar else {}

    def as_program(_: object) -> bytes:
        raise AssertionError("the blob is enough")

    return DelegatePayload(
        DELEGATE_ID,
        memoryview(pack(compile_program(program, EthosUOptions(target=target)))),
        (CompileSpec("target", target.encode()), *([CompileSpec("tosa", key.encode())] if sidecar else [])),
        tuple(TensorSpec(_DTYPES[tensor.dtype], tensor.shape) for tensor in graph.inputs),
        tuple(TensorSpec(_DTYPES[tensor.dtype], tensor.shape) for tensor in graph.outputs),
        named,
        as_program,
    )


def run(runtime: EthosURuntime, handle: object, loaded: DelegatePayload, inputs: list[np.ndarray]) -> list[np.ndarray]:
    outputs = [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in loaded.outputs]
    runtime.execute(handle, [torch.from_numpy(value) for value in inputs], outputs)
    return [output.numpy() for output in outputs]


@pytest.mark.parametrize("name", ["digits", "keyword_spotting", "u_net"])
def test_the_blob_alone_is_enough_for_an_ethos_u55(name: str, caplog: pytest.LogCaptureFixture) -> None:
    program, inputs = build(name)
    runtime, loaded = EthosURuntime(), payload(program)
    with caplog.at_level(logging.INFO):
        handle = runtime.init(loaded)
    assert handle.engine == "command stream"
    assert "EthosUBackend runs by its command stream" in caplog.text
    for _ in range(2):
        np.testing.assert_array_equal(run(runtime, handle, loaded, inputs)[0], reference.run(program, inputs)[0])


@pytest.mark.parametrize("kind", ["argmax", "convolution16", "integers", "moved", "matmul"])
def test_tensors_of_all_types_and_ranks_go_in_and_out(kind: str) -> None:
    program, inputs = draw(kind, 3)
    runtime, loaded = EthosURuntime(), payload(program)
    np.testing.assert_array_equal(
        run(runtime, runtime.init(loaded), loaded, inputs)[0], reference.run(program, inputs)[0]
    )


@pytest.mark.parametrize("target", ["ethos-u65-256", "ethos-u65-512", "ethos-u85-256"])
def test_another_accelerator_runs_by_its_tosa_program(target: str) -> None:
    program, inputs = build("digits")
    runtime, loaded = EthosURuntime(), payload(program, target, sidecar=True)
    handle = runtime.init(loaded)
    assert handle.engine == "TOSA reference model"
    np.testing.assert_array_equal(run(runtime, handle, loaded, inputs)[0], reference.run(program, inputs)[0])


def test_an_ethos_u55_with_a_tosa_program_still_runs_by_its_command_stream() -> None:
    program, _ = build("digits")
    assert EthosURuntime().init(payload(program, sidecar=True)).engine == "command stream"


def test_what_the_command_stream_cannot_say_the_tosa_program_does() -> None:
    """A program that is refused here, of a graph with a correct result: the model's."""
    case = Case(np.random.default_rng(0), Graph("large"), [])
    image = case.input((1, 2, 2, 4))
    case.graph.output(case.rescale(image, DType.INT8, 1.0))
    program = tosa.write(case.graph)
    loaded = payload(program, sidecar=True)
    blob = bytearray(loaded.blob)
    # OFM_PRECISION's command, with a rounding mode that is not executed.
    place = blob.index((0x0114).to_bytes(2, "little"), blob.index(b"COP1") + 32)
    blob[place + 3] = 0x41
    broken = DelegatePayload(
        loaded.delegate_id,
        memoryview(bytes(blob)),
        loaded.compile_specs,
        loaded.inputs,
        loaded.outputs,
        loaded.named_data,
        loaded.as_program,
    )
    runtime = EthosURuntime()
    handle = runtime.init(broken)
    assert handle.engine == "TOSA reference model"
    np.testing.assert_array_equal(run(runtime, handle, broken, case.inputs)[0], reference.run(program, case.inputs)[0])


def test_a_program_that_asks_for_the_whole_memory_of_the_host_is_not_executed() -> None:
    program, _ = build("digits")
    loaded = payload(program)
    greedy = replace(unpack(loaded.blob), scratch_size=(1 << 32) - 1)
    with pytest.raises(RuntimeUnavailableError, match="asks for 4294967295 bytes of scratch memory"):
        EthosURuntime().init(replace(loaded, blob=memoryview(pack(greedy))))


@pytest.mark.parametrize(
    ("shape", "message"),
    [((1, 9), r"TOSA program: has the inputs \[\(1, 9\) of 1 bytes\], and the call"), ((2, 3), r"gives INT8\[1, 9\]")],
)
def test_a_tosa_program_that_the_model_must_not_get_is_refused(shape: tuple[int, ...], message: str) -> None:
    """One of another network, or one that violates a rule of TOSA."""
    graph = Graph()
    x = graph.input("x", (1, 9), DType.INT8)
    graph.output(graph.add(tosa.Identity(), [x], shape, DType.INT8, "y"))
    other = tosa.write(graph)
    loaded = payload(build("digits")[0], "ethos-u85-128", sidecar=True)
    key = tosa_key(other)
    kept = tuple(spec for spec in loaded.compile_specs if spec.key != TOSA_SPEC)
    specs = (*kept, CompileSpec(TOSA_SPEC, key.encode()))
    with pytest.raises(FormatError, match=message):
        EthosURuntime().init(replace(loaded, compile_specs=specs, named_data={key: memoryview(other)}))


def test_a_program_that_ends_the_reference_model_is_an_error_of_the_call() -> None:
    """RESCALE of unsigned int32 is not a TOSA operation: the model aborts its process."""
    graph = Graph()
    x = graph.input("x", (4,), DType.INT32)
    rescale = tosa.Rescale(True, tosa.Rounding.SINGLE, False, True, False)
    operands = [graph.constant(*item) for item in (([1 << 30], DType.INT32), ([30], DType.INT8), ([0], DType.INT32))]
    graph.output(graph.add(rescale, [x, *operands, graph.constant([0], DType.INT8)], (4,), DType.INT8, "y"))
    model = Isolated(tosa.write(graph))
    for _ in range(2):
        with pytest.raises(ExecutionError, match="TOSA reference model"):
            model.run([np.full(4, -5, np.int32)])
    right = Graph()
    y = right.input("y", (4,), DType.INT32)
    right.output(right.add(tosa.Identity(), [y], (4,), DType.INT32, "z"))
    other = Isolated(tosa.write(right))
    for _ in range(2):
        assert other.run([np.full(4, -5, np.int32)])[0].tolist() == [-5] * 4
    kept = POOL._idle[0]
    model.close()
    assert kept.alive
    model.close()
    other.close()
    assert not kept.alive


def test_without_either_way_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _ = build("digits")
    with pytest.raises(RuntimeUnavailableError, match=r"(Ethos-U85|second form).*\n.*keep_tosa"):
        EthosURuntime().init(payload(program, "ethos-u85-128"))
    missing = Availability(False, "tosa-tools is missing")
    monkeypatch.setattr(reference, "availability", lambda: missing)
    with pytest.raises(RuntimeUnavailableError, match="tosa-tools is missing"):
        EthosURuntime().init(payload(program, "ethos-u85-128", sidecar=True))
    assert EthosURuntime().is_available() == Availability(True)


def test_without_the_weight_decoder_nothing_runs_but_the_tosa_program(monkeypatch: pytest.MonkeyPatch) -> None:
    program, inputs = build("digits")
    bare, loaded = payload(program), payload(program, sidecar=True)
    monkeypatch.setitem(sys.modules, "ethosu.mlw_codec", None)
    monkeypatch.delattr("ethosu.mlw_codec", raising=False)
    runtime = EthosURuntime()
    assert runtime.is_available() == Availability(True)
    with pytest.raises(RuntimeUnavailableError, match="weight decoder is not installed"):
        runtime.init(bare)
    handle = runtime.init(loaded)
    assert handle.engine == "TOSA reference model"
    np.testing.assert_array_equal(run(runtime, handle, loaded, inputs)[0], reference.run(program, inputs)[0])
    monkeypatch.setattr(reference, "availability", lambda: Availability(False, "tosa-tools is missing"))
    available = runtime.is_available()
    assert not available.available and "pip install ethos-u-vela" in available.reason


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-128"])
def test_a_named_tosa_program_that_is_missing_is_an_error(target: str) -> None:
    program, _ = build("digits")
    loaded = payload(program, target, sidecar=True)
    loaded.named_data.clear()  # type: ignore[attr-defined]
    with pytest.raises(FormatError, match=r"TOSA program .*: the file has no data '[0-9a-f]{64}.tosa'"):
        EthosURuntime().init(loaded)


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-128"])
def test_a_damaged_tosa_program_is_refused_before_the_model_sees_it(target: str) -> None:
    program, _ = build("digits")
    loaded = payload(program, target, sidecar=True)
    ((key, data),) = loaded.named_data.items()
    damaged = bytearray(data)
    damaged[len(damaged) // 2] ^= 1
    loaded.named_data[key] = memoryview(bytes(damaged))  # type: ignore[index]
    with pytest.raises(FormatError, match="the TOSA program is damaged"):
        EthosURuntime().init(loaded)


def test_a_blob_of_another_call_is_refused() -> None:
    program, _ = draw("added_plainly", 0)
    loaded = payload(program)

    def with_specs(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> DelegatePayload:
        return DelegatePayload(
            loaded.delegate_id, loaded.blob, loaded.compile_specs, inputs, outputs, {}, loaded.as_program
        )

    first, other = loaded.inputs
    for inputs, outputs, reason in (
        (
            (first,),
            loaded.outputs,
            r"has the inputs \[(\(.*\) of 1 bytes(, )?){2}\], and the call \[int8 \([\d, ]*\)\]$",
        ),
        (
            (first, other, other),
            loaded.outputs,
            r"EthosUBackend blob: has the inputs .*, and the call \[(int8 .*){3}\]",
        ),
        ((TensorSpec("int16", first.shape), other), loaded.outputs, "EthosUBackend blob: has the inputs"),
        ((TensorSpec("float32", first.shape), other), loaded.outputs, "EthosUBackend blob: has the inputs"),
        ((TensorSpec("int8", (*first.shape, 2)), other), loaded.outputs, "EthosUBackend blob: has the inputs"),
        ((TensorSpec("int8", first.shape, dynamic=True), other), loaded.outputs, "EthosUBackend blob: has the inputs"),
        (loaded.inputs, (), r"of 1 bytes\], and the call \[\]"),
        (loaded.inputs, (TensorSpec("int32", (1,)),), "EthosUBackend blob: has the outputs"),
    ):
        with pytest.raises(FormatError, match=reason):
            EthosURuntime().init(with_specs(inputs, outputs))


def test_a_damaged_blob_is_refused_when_it_is_loaded() -> None:
    program, _ = build("digits")
    loaded = payload(program, sidecar=True)
    rng, refused = np.random.default_rng(0), 0
    end = loaded.blob.tobytes().index(b"weight_data")
    for _ in range(200):
        blob = bytearray(loaded.blob)
        blob[int(rng.integers(0, end))] ^= 1 << int(rng.integers(0, 8))
        damaged = DelegatePayload(
            loaded.delegate_id, memoryview(bytes(blob)), (), loaded.inputs, loaded.outputs, {}, loaded.as_program
        )
        try:
            EthosURuntime().init(damaged)
        except (FormatError, RuntimeUnavailableError):
            refused += 1
    # What is left is another program that is whole: other zero points, scales, addresses inside the arena.
    assert refused > 80


def test_calls_that_are_wrong_are_errors() -> None:
    program, inputs = draw("added_plainly", 0)
    runtime, loaded = EthosURuntime(), payload(program)
    handle = runtime.init(loaded)
    tensors = [torch.from_numpy(value) for value in inputs]
    output = torch.zeros(loaded.outputs[0].shape, dtype=torch.int8)
    with pytest.raises(ExecutionError, match="is called with 0 outputs: it has 1"):
        runtime.execute(handle, tensors, [])
    with pytest.raises(ExecutionError, match="is called with 1 inputs: it has 2"):
        runtime.execute(handle, tensors[:1], [output])
    with pytest.raises(ExecutionError, match="EthosUBackend: output 0 is int32"):
        runtime.execute(handle, tensors, [output.to(torch.int32)])
    # The same bytes in another shape, or of another type, are another call's.
    with pytest.raises(ExecutionError, match=r"EthosUBackend: input 0 is int8 \(1, 11, 8, 21\), not int8 \(11, "):
        runtime.execute(handle, [tensors[0].unsqueeze(0), *tensors[1:]], [output])
    with pytest.raises(ExecutionError, match="EthosUBackend: input 0 is uint8"):
        runtime.execute(handle, [tensors[0].view(torch.uint8), *tensors[1:]], [output])
    runtime.execute(handle, tensors, [output])
    runtime.destroy(handle)
    runtime.destroy(handle)
    with pytest.raises(ExecutionError, match="was destroyed"):
        runtime.execute(handle, tensors, [output])


def test_with_the_last_handle_the_decoder_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    # Others' handles, and the process that they use, are not counted here.
    monkeypatch.setattr(decompressor, "_holders", 0)
    monkeypatch.setattr(decompressor, "_process", None)
    program, inputs = build("digits")
    runtime, loaded = EthosURuntime(), payload(program)
    first, second = runtime.init(loaded), runtime.init(loaded)
    run(runtime, first, loaded, inputs)
    decoder = decompressor._process
    assert decoder is not None
    runtime.destroy(first)
    runtime.destroy(first)
    run(runtime, second, loaded, inputs)
    assert decompressor._process is decoder and decoder.alive
    runtime.destroy(second)
    assert decompressor._process is None and not decoder.alive
