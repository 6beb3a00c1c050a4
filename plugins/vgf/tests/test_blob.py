"""VGF files: the graph in them, Arm's reader, damage, and files of stock's compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import delegatekit
from delegatekit_api import DelegatePayload, ExecutionError, FormatError, TensorSpec
from delegatekit_conformance import testkit
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import DType, Graph, reference
from delegatekit_toolkit.tosa.example import small_network
from delegatekit_vgf.blob.container import Container, unpack
from delegatekit_vgf.blob.operators import operators
from delegatekit_vgf.blob.spirv import read_graph
from delegatekit_vgf.compiler import convert, converter
from delegatekit_vgf.runtime import VgfRuntime


@pytest.fixture(scope="module")
def lowered() -> testkit.Lowered:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4))
    return testkit.lower(net, torch.randn(1, 3, 8, 8), backend="vgf")


def _payload(blob: bytes) -> DelegatePayload:
    given, made = TensorSpec("float32", (1, 3, 8, 8)), TensorSpec("float32", (1, 4))
    return DelegatePayload("VgfBackend", memoryview(blob), (), (given,), (made,), {}, bytes)


def test_the_graph_in_the_file_is_the_one_that_was_converted() -> None:
    graph = small_network()
    found = read_graph(unpack(convert(tosa.write(graph))))
    assert [item.operator for item in found.operations] == [item.operator for item in graph.operations]
    for made, wanted in zip(found.operations, graph.operations, strict=True):
        assert (made.output.shape, made.output.dtype) == (wanted.output.shape, wanted.output.dtype)
        for ours, theirs in zip(made.inputs, wanted.inputs, strict=True):
            assert (ours.data is None) == (theirs.data is None)
            if ours.data is not None:
                np.testing.assert_array_equal(ours.data, theirs.data)
    x = np.random.default_rng(0).integers(-128, 128, (1, 8, 8, 16)).astype(np.int8)
    (ours,), (theirs,) = reference.run(tosa.write(found), [x]), reference.run(tosa.write(graph), [x])
    np.testing.assert_array_equal(ours, theirs)


def _single(operator: tosa.Operator, *operands: Any, result: tuple[int, ...], dtype: DType = DType.FP32) -> Graph:
    """A graph of one operator; operands are shapes of float32 inputs, tensors of their own type, or constants."""
    graph = Graph("one")
    inputs = []
    for operand in operands:
        if isinstance(operand, tuple) and isinstance(operand[-1], DType) and isinstance(operand[0], tuple):
            inputs.append(graph.input("x", operand[0], operand[1]))
        elif isinstance(operand, tuple):
            inputs.append(graph.constant(operand[0], operand[1]))
    graph.output(graph.add(operator, inputs, result, dtype, "y"))
    graph.verify()
    return graph


_F, _I, _B, _S = DType.FP32, DType.INT32, DType.BOOL, DType.SHAPE
_ZERO = ([0], _F)
_GRAPHS = [
    _single(tosa.Clamp(-1.0, 2.5), ((2, 3), _F), result=(2, 3)),
    _single(tosa.Argmax(1), ((2, 3), _F), result=(2,), dtype=_I),
    _single(tosa.ArithmeticRightShift(True), ((2, 3), _I), ((1, 1), _I), result=(2, 3), dtype=_I),
    _single(tosa.ReduceMax(1), ((2, 3), _F), result=(2, 1)),
    _single(tosa.Concat(1), ((2, 3), _F), ((2, 1), _F), result=(2, 4)),
    _single(tosa.Pad(), ((2, 3), _F), ([0, 1, 1, 0], _S), ([1.5], _F), result=(3, 4)),
    _single(tosa.Slice(), ((2, 3), _F), ([0, 1], _S), ([1, 2], _S), result=(1, 2)),
    _single(tosa.Tile(), ((2, 3), _F), ([1, 2], _S), result=(2, 6)),
    _single(tosa.Transpose((1, 0)), ((2, 3), _F), result=(3, 2)),
    _single(tosa.Reverse(1), ((2, 3), _F), result=(2, 3)),
    _single(tosa.Gather(), ((1, 8, 2), _F), ((1, 3), _I), result=(1, 3, 2)),
    _single(tosa.Select(), ((2, 3), _B), ((1, 1), _F), ((2, 1), _F), result=(2, 3)),
    _single(tosa.Cast(), ((2, 3), _B), result=(2, 3), dtype=_I),
    _single(
        tosa.Resize(tosa.ResizeMode.BILINEAR),
        *(((1, 4, 4, 1), _F), ([4, 2, 4, 2], _S), ([-1, -1], _S), ([1, 1], _S)),
        result=(1, 8, 8, 1),
    ),
    _single(tosa.MaxPool2d((2, 2), (2, 2)), ((1, 4, 4, 1), _F), result=(1, 2, 2, 1)),
    _single(tosa.AvgPool2d((2, 2), (2, 2), acc_type=_F), ((1, 4, 4, 1), _F), _ZERO, _ZERO, result=(1, 2, 2, 1)),
    _single(
        tosa.TransposeConv2d(stride=(2, 2), acc_type=_F),
        *(((1, 3, 3, 1), _F), (np.ones((1, 2, 2, 1)), _F), _ZERO, _ZERO, _ZERO),
        result=(1, 6, 6, 1),
    ),
    _single(
        tosa.Conv3d(acc_type=_F),
        *(((1, 3, 3, 3, 1), _F), (np.ones((1, 2, 2, 2, 1)), _F), _ZERO, _ZERO, _ZERO),
        result=(1, 2, 2, 2, 1),
    ),
    _single(tosa.Matmul(), ((1, 2, 3), _F), ((1, 3, 2), _F), _ZERO, _ZERO, result=(1, 2, 2)),
    _single(tosa.Negate(), ((2, 3), _F), _ZERO, _ZERO, result=(2, 3)),
]


@pytest.mark.parametrize("graph", _GRAPHS, ids=lambda graph: graph.operations[0].operator.name)
def test_operators_keep_their_attributes_and_operands(graph: Graph) -> None:
    found = read_graph(unpack(convert(tosa.write(graph))))
    (made,), (wanted,) = found.operations, graph.operations
    assert made.operator == wanted.operator
    for ours, theirs in zip(made.inputs, wanted.inputs, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if theirs.data is not None:
            assert ours.data is not None
            np.testing.assert_array_equal(ours.data, theirs.data)


def test_arms_reader_finds_the_same_parts(lowered: testkit.Lowered) -> None:
    vgf = pytest.importorskip("vgfpy", reason="ai-ml-sdk-vgf-library is not installed")
    blob = bytearray(lowered.delegate.blob)
    header = vgf.CreateHeaderDecoder(blob, vgf.HeaderSize(), len(blob))
    assert header.IsValid() and header.CheckVersion()

    def part(what: str) -> tuple[bytearray, int]:
        start, size = (getattr(header, f"Get{what}{which}")() for which in ("Offset", "Size"))
        return blob[start : start + size], size

    modules = vgf.CreateModuleTableDecoder(*part("ModuleTable"))
    sequence = vgf.CreateModelSequenceTableDecoder(*part("ModelSequenceTable"))
    constants = vgf.CreateConstantDecoder(*part("Constants"))
    found = unpack(lowered.delegate.blob)
    assert (modules.size(), sequence.modelSequenceTableSize()) == (1, 1)
    assert tuple(np.frombuffer(modules.getSPIRVModuleCode(0), np.uint32)) == found.words
    assert [bytes(constants.getConstant(place)) for place in range(constants.size())] == [*map(bytes, found.constants)]


def test_every_end_that_is_cut_off_is_refused(lowered: testkit.Lowered) -> None:
    blob = lowered.delegate.blob
    for size in (0, 4, 127, 128, 300, len(blob) // 2, len(blob) - 1):
        with pytest.raises(FormatError):
            VgfRuntime().init(_payload(blob[:size]))


def test_changed_bytes_are_refused_or_run(lowered: testkit.Lowered) -> None:
    blob, runtime = lowered.delegate.blob, VgfRuntime()
    for place in range(0, len(blob), 53):
        damaged = bytearray(blob)
        damaged[place] ^= 1 << place % 8
        try:
            handle = runtime.init(_payload(bytes(damaged)))
        except FormatError:
            continue
        runtime.destroy(handle)


@pytest.mark.parametrize("quantized", [False, True])
def test_weights_that_the_converter_calls_sparse_are_read(quantized: bool) -> None:
    torch.manual_seed(0)
    net, x = torch.nn.Conv2d(8, 8, 3).eval(), torch.randn(1, 8, 5, 5)
    with torch.no_grad():
        net.weight[:, [0, 1, 4, 5]] = 0
    model = delegatekit.quantize(net, [(x,)], backend="vgf", progress=False) if quantized else net
    (found,) = testkit.lower(model, x, backend="vgf").run()
    torch.testing.assert_close(found, model(x), rtol=0, atol=1e-5)


def _module(*instructions: tuple[int, ...]) -> Container:
    """A module that begins with the types 1 int32, 2 float32, 3 int8, and the numbers 4 of 1, 5 of 0, 6 of infinity."""
    begin = [(21, 1, 32, 0), (22, 2, 32), (21, 3, 8, 0), (43, 1, 4, 1), (43, 1, 5, 0), (43, 2, 6, 0x7F800000)]
    words = [0x07230203, 0, 0, 1000, 0]
    for code, *operands in (*begin, *instructions):
        words += [(len(operands) + 1) << 16 | code, *operands]
    return Container(tuple(words), ())


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        ([(44, 9, 10, 6), (4163, 11, 2, 4, 10)], "OverflowError"),
        ([(43, 1, 7, 300), (44, 9, 10, 4), (4163, 11, 3, 4, 10), (44, 11, 12, 7), (4185, 12, 5)], "OverflowError"),
        (
            [(43, 1, 7, 20000), (44, 9, 10, 7), (4163, 11, 1, 4, 10), (4461, 11, 12, 5), (44, 9, 13, *[12] * 20000)],
            "more than",
        ),
        ([(44, 9, 10, *[5] * 500), (44, 9, 11, *[10] * 500), (44, 9, 12, *[11] * 500)], "more than"),
        ([(44, 9, 10, 4), (4163, 11, 1, 4, 10), (44, 11, 12, 5, 5)], "of 2 numbers has the shape"),
        ([(44, 9, 10, *[5] * 13), (4163, 11, 1, 4, 10)], "13 sizes"),
    ],
    ids=["infinite size", "beyond int8", "replicated twice", "nested", "too many numbers", "too many sizes"],
)
def test_modules_with_impossible_constants_are_refused(instructions: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_graph(_module(*instructions))


@pytest.mark.parametrize("name", ["SPV_ARM_tensors", "SPV_KHR_vulkan_memory_model", "TOSA.001000.1"])
def test_a_module_that_needs_something_unknown_is_refused(lowered: testkit.Lowered, name: str) -> None:
    blob, other = bytes(lowered.delegate.blob), f"{name[:-2]}xx"
    assert blob.count(name.encode()) == 1
    with pytest.raises(FormatError, match=other):
        VgfRuntime().init(_payload(blob.replace(name.encode(), other.encode())))


@pytest.mark.parametrize("flag", ["--emit-debug-info", "--disable-replicated-composites"])
def test_files_of_all_flags_run(flag: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Hardswish(), torch.nn.ConstantPad2d(1, 2.0))
    lowered = testkit.lower(net, torch.randn(2, 8), backend="vgf", options={"converter_flags": (flag,)})
    assert lowered.delegate.blob != testkit.lower(lowered.module, *lowered.inputs, backend="vgf").delegate.blob
    testkit.compare(lowered, tolerance=1e-5)


def test_operators_of_a_file_are_told(lowered: testkit.Lowered) -> None:
    found = operators(memoryview(lowered.delegate.blob), ())
    assert {"CONV2D", "MATMUL"} <= {item.name for item in found}
    assert found[-1].facts["result"] == "fp32[1, 4]"


def test_the_same_program_gives_the_same_bytes(lowered: testkit.Lowered) -> None:
    again = testkit.lower(lowered.module, *lowered.inputs, backend="vgf")
    assert again.delegate.blob == lowered.delegate.blob


def test_a_destroyed_delegate_says_so(lowered: testkit.Lowered) -> None:
    runtime = VgfRuntime()
    handle = runtime.init(_payload(lowered.delegate.blob))
    runtime.destroy(handle)
    runtime.destroy(handle)
    with pytest.raises(ExecutionError, match="was destroyed"):
        runtime.execute(handle, [torch.ones(1, 3, 8, 8)], [torch.ones(1, 4)])


def test_a_file_of_stocks_compiler_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same container, and a graph that computes the same numbers."""
    pytest.importorskip("executorch.backends.arm.vgf", reason="stock's compiler is not installed")
    from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
    from executorch.exir import to_edge_transform_and_lower

    # It looks for the program on PATH, which tests need not have.
    monkeypatch.setenv("MODEL_CONVERTER_PATH", str(converter.program()))
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    x = torch.randn(2, 8)
    try:
        stock = to_edge_transform_and_lower(
            torch.export.export(net, (x,)), partitioner=[VgfPartitioner(VgfCompileSpec("TOSA-1.0+FP"))]
        ).to_executorch()
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"stock's compiler cannot work here: {error}")
    torch.testing.assert_close(delegatekit.load(stock.buffer)["forward"](x), net(x), rtol=1e-5, atol=1e-5)
