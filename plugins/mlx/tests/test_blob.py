"""Blobs: the same bytes in every process, damage, and what is inside."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit_api import CompileSpec, DelegateKitError, DelegatePayload, FormatError, TensorSpec
from delegatekit_conformance import testkit
from delegatekit_mlx.blob import schema
from delegatekit_mlx.blob.container import unwrap, wrap
from delegatekit_mlx.blob.operators import operators
from delegatekit_mlx.blob.program import read_program
from delegatekit_mlx.runtime import MLXRuntime
from delegatekit_mlx.runtime.functions import FUNCTIONS, LACKING


@pytest.fixture(scope="module")
def lowered() -> testkit.Lowered:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    return testkit.lower(net, torch.randn(2, 4), backend="mlx")


def _payload(lowered: testkit.Lowered, blob: bytes | None = None, *, bare: bool = False) -> DelegatePayload:
    """What the runtime is given; `bare` without what only this package writes beside the blob."""
    delegate = lowered.delegate
    specs = () if bare else tuple(CompileSpec(key, value) for key, value in delegate.compile_specs.items())
    given, made = TensorSpec("float32", (2, 4)), TensorSpec("float32", (2, 3))
    data = {key: memoryview(value) for key, value in delegate.named_data.items()}
    found = memoryview(delegate.blob if blob is None else blob)
    return DelegatePayload("MLXBackend", found, specs, (given,), (made,), data, bytes)


def _run(payload: DelegatePayload, x: torch.Tensor) -> torch.Tensor:
    runtime, output = MLXRuntime(), torch.empty(2, 3)
    runtime.execute(runtime.init(payload), [x], [output])
    return output


def test_a_graph_is_read_as_it_was_written(lowered: testkit.Lowered) -> None:
    blob = lowered.delegate.blob
    assert wrap(unwrap(blob)) == blob
    assert blob[:8] == bytes(4) + b"MLX0" and struct.unpack("<QQ", blob[8:24]) == (len(blob), 0)


def test_every_changed_bit_is_refused(lowered: testkit.Lowered) -> None:
    blob = lowered.delegate.blob
    for place in range(0, len(blob), 31):
        damaged = bytearray(blob)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(FormatError, match="checksum"):
            MLXRuntime().init(_payload(lowered, bytes(damaged)))


def test_a_changed_constant_or_signature_is_refused(lowered: testkit.Lowered) -> None:
    payload = _payload(lowered)
    key = next(iter(payload.named_data))
    data = {**payload.named_data, key: memoryview(bytes(len(payload.named_data[key])))}
    with pytest.raises(FormatError, match="checksum"):
        MLXRuntime().init(replace(payload, named_data=data))
    for spec in payload.compile_specs:
        others = [other for other in payload.compile_specs if other is not spec]
        for changed in (others, [*others, CompileSpec(spec.key, bytes([spec.value[0] ^ 1]) + spec.value[1:])]):
            with pytest.raises(FormatError):
                MLXRuntime().init(replace(payload, compile_specs=tuple(changed)))


def test_a_blob_without_a_checksum_runs(lowered: testkit.Lowered) -> None:
    """As stock ExecuTorch's compiler writes it."""
    found = _run(_payload(lowered, bare=True), lowered.inputs[0])
    torch.testing.assert_close(found, lowered.eager()[0])


def _first(graph: schema.MLXGraph) -> Any:
    return graph.instruction_chains[0].instructions[0].op


#: Graphs that name what does not exist, and the words that tell it.
_HOSTILE: dict[str, tuple[Any, str]] = {
    "another version": (lambda graph: setattr(graph, "version", "2"), "version '2'"),
    "inputs without end": (lambda graph: setattr(graph, "num_input_tensors", (1 << 32) - 1), "describes"),
    "a chain beyond the end": (lambda graph: setattr(graph, "main_chain_idx", 7), "runs chain 7 of 1"),
    "a first chain that is the main one": (
        lambda graph: setattr(graph, "init_chain_idx", 0),
        "reads tensor|two places",
    ),
    "too few descriptions": (lambda graph: graph.tensor_meta.pop(), "describes"),
    "an unknown type": (lambda graph: setattr(graph.tensor_meta[0], "scalar_type", 99), "type 99"),
    "a huge constant": (
        lambda graph: setattr(graph.tensor_meta[0], "shape", [schema.ShapeDim(value=1 << 30)] * 3),
        "tensor 0",
    ),
    "a constant without a name": (lambda graph: graph.named_slots.clear(), "does not name constant 0"),
    "a name twice": (lambda graph: graph.named_slots.append(graph.named_slots[0]), "names constant 0 twice"),
    "an input that is a number": (lambda graph: setattr(graph.input_map[0], "slot_type", 1), "that is a number"),
    "an input elsewhere": (lambda graph: setattr(graph.input_map[0], "idx", 0), "lists the inputs"),
    "a tensor that nothing computes": (lambda graph: setattr(_first(graph), "x", 40), "reads tensor 40"),
    "a tensor beyond the end": (lambda graph: setattr(_first(graph), "out", 1 << 31), "writes tensor"),
    "a constant that is written": (lambda graph: setattr(_first(graph), "out", 0), "which is a constant"),
    "a field that is missing": (lambda graph: setattr(_first(graph), "out", None), "has no out"),
    "a result that nothing computes": (
        lambda graph: graph.instruction_chains[0].instructions.clear(),
        "never computed",
    ),
    "an instruction without an operator": (
        lambda graph: graph.instruction_chains[0].instructions.append(schema.Instruction()),
        "has no operator",
    ),
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_a_graph_that_names_what_does_not_exist_is_refused(lowered: testkit.Lowered, name: str) -> None:
    change, words = _HOSTILE[name]
    graph = unwrap(lowered.delegate.blob)
    change(graph)
    with pytest.raises(FormatError, match=words):
        MLXRuntime().init(_payload(lowered, wrap(graph), bare=True))


def test_a_chain_that_runs_itself_is_refused(lowered: testkit.Lowered) -> None:
    graph = unwrap(lowered.delegate.blob)
    loop = schema.IfNode(cond=schema.IntOrVid(literal=1), then_chain_idx=0, else_chain_idx=0)
    graph.instruction_chains[0].instructions.insert(0, schema.Instruction(op=loop))
    with pytest.raises(FormatError, match="runs chain 0 from two places"):
        read_program(wrap(graph))


def test_every_operator_runs_or_tells_why_not() -> None:
    chains = {schema.IfNode, schema.ScanNode}
    assert set(schema.OPERATORS) == FUNCTIONS.keys() | LACKING.keys() | chains
    assert not FUNCTIONS.keys() & LACKING.keys()


def test_operators_for_apples_gpus_only_are_told(lowered: testkit.Lowered) -> None:
    graph = unwrap(lowered.delegate.blob)
    kernel = schema.MetalKernelNode(name="k", source="", inputs=[0], outputs=[], grid=[], threadgroup=[])
    graph.instruction_chains[0].instructions.insert(0, schema.Instruction(op=kernel))
    with pytest.raises(FormatError, match=r"operator 0 \(MetalKernel\): is a program in Metal's language"):
        MLXRuntime().init(_payload(lowered, wrap(graph), bare=True))


def test_results_that_share_a_number_have_names_of_their_own() -> None:
    lowered = testkit.lower(lambda x: (((x.exp() + 1).sin() * 2).cos() - 3).abs(), torch.randn(3), backend="mlx")
    found = operators(memoryview(lowered.delegate.blob))
    names = [name for item in found for name in item.makes]
    assert len(set(names)) == len(names) and any("(2)" in name for name in names)
    made = {"input 0"}
    for item in found:
        assert set(item.reads) <= made
        made |= set(item.makes)


def test_integers_of_no_bits_are_refused() -> None:
    torch.manual_seed(0)
    net, x = torch.nn.Sequential(torch.nn.Linear(32, 3)).eval(), torch.randn(2, 32)
    quantized = delegatekit.quantize(net, [(x,)], backend="mlx", scheme="int4-weight-only")
    lowered = testkit.lower(quantized, x, backend="mlx")
    graph, output = unwrap(lowered.delegate.blob), torch.empty(2, 3)
    (product,) = (
        item.op for item in graph.instruction_chains[0].instructions if isinstance(item.op, schema.QuantizedMatmulNode)
    )
    product.bits = 0
    payload = replace(_payload(lowered, wrap(graph), bare=True), inputs=(TensorSpec("float32", (2, 32)),))
    runtime = MLXRuntime()
    with pytest.raises(FormatError, match="integers of 0 bits in groups of 32"):
        runtime.execute(runtime.init(payload), [x], [output])


def test_any_damage_of_a_bare_blob_is_an_error_of_ours(lowered: testkit.Lowered) -> None:
    blob, generator = lowered.delegate.blob, random.Random(0)
    for _ in range(300):
        damaged = bytearray(blob)
        for _ in range(generator.choice((1, 2, 8))):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            _run(_payload(lowered, bytes(damaged), bare=True), lowered.inputs[0])
        except DelegateKitError:
            continue


def test_operators_of_a_blob_are_told(lowered: testkit.Lowered) -> None:
    found = operators(memoryview(lowered.delegate.blob))
    assert [item.name for item in found] == ["Transpose", "Addmm", "Full", "Maximum"]
    assert found[0].facts == {"perm": "[1, 0]"} and found[1].reads[0] == "input 0"
    assert found[0].makes[0] in found[1].reads and found[-1].makes == ("output 0",)
