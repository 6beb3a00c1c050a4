"""The serialized blob: structure, constants, and reasons for refusing a corrupted one."""

from __future__ import annotations

import hashlib
import random
import struct

import pytest
import torch
from torch import nn

from delegatekit_api import FormatError, TensorSpec
from delegatekit_toolkit import testing
from delegatekit_toolkit.content import content_key
from delegatekit_xnnpack.blob import reader, schema
from delegatekit_xnnpack.blob.reader import parse
from delegatekit_xnnpack.blob.writer import serialize
from delegatekit_xnnpack.ir import operators as ops
from delegatekit_xnnpack.ir.builder import GraphBuilder
from delegatekit_xnnpack.ir.graph import Graph, Node, Value
from delegatekit_xnnpack.ir.types import DataType, Format, PerTensorQuantization


def _linear_graph(weight=None):
    builder = GraphBuilder()
    x = builder.input((2, 3))
    weight = torch.arange(12.0).reshape(4, 3) if weight is None else weight
    y = builder.emit(ops.FullyConnected(), x.value, builder.constant(weight), builder.constant(torch.ones(4)))
    builder.output(builder.clamp(type(x).dense(y), 0.0, 6.0))
    return builder.graph


def validate(blob, named, arguments=2):
    """The keys that the blob of `_linear_graph` uses, called with this many arguments."""
    inputs = [TensorSpec("float32", (2, 3))] * (arguments - 1)
    payload = testing.payload_of(bytes(blob), inputs, [TensorSpec("float32", (2, 4))], named_data=named)
    return reader.validate(payload).keys


@pytest.fixture
def serialized():
    return serialize(_linear_graph())


@pytest.fixture
def named(serialized):
    return {item.key: memoryview(item.data.numpy().tobytes()) for item in serialized.named_data}


def test_the_header_says_where_everything_lies(serialized):
    blob = serialized.blob
    magic, length, start, size, constants, constants_size = struct.unpack_from("<4x4sHIIIQ", blob)
    assert (magic, length, start) == (b"XH00", 30, 32)
    assert blob[start + 4 : start + 8] == b"XN01"
    assert constants == len(blob) == start + size + -size % 16
    assert constants_size == 0


def test_values_and_nodes_are_written_as_the_graph_has_them(serialized):
    graph = parse(serialized.blob)
    values = [value.xvalue_union for value in graph.xvalues]
    assert [value.dims for value in values] == [[2, 3], [2, 4], [4, 3], [4], [2, 4]]
    assert [value.flags for value in values] == [schema.EXTERNAL_INPUT, schema.EXTERNAL_OUTPUT, 0, 0, 0]
    assert [value.external_id for value in values] == [0, 1, schema.NONE, schema.NONE, schema.NONE]
    assert [value.constant_buffer_idx for value in values] == [0, 0, 1, 2, 0]
    assert {value.datatype for value in values} == {DataType.FLOAT32}
    layer, clamp = graph.xnodes
    assert type(layer.xnode_union).__name__ == "FullyConnected"
    assert (layer.xnode_union.input1_id, layer.xnode_union.filter_id, layer.xnode_union.bias_id) == (0, 2, 3)
    assert clamp.output_min_max == schema.OutputMinMax(0.0, 6.0)
    assert (graph.num_externs, graph.input_ids, graph.output_ids) == (2, [0], [1])


def test_all_constants_are_named_by_their_content(serialized):
    graph = parse(serialized.blob)
    assert [entry.named_key for entry in graph.constant_data] == [
        None,
        hashlib.sha256(torch.arange(12.0).numpy().tobytes()).hexdigest(),
        hashlib.sha256(torch.ones(4).numpy().tobytes()).hexdigest(),
    ]
    assert {entry.offset for entry in graph.constant_data[1:]} == {schema.NAMED}
    assert [entry.size for entry in graph.constant_data] == [0, 48, 16]


def test_named_data_refers_to_the_weights_own_storage():
    weight = torch.randn(3, 4)
    result = serialize(_linear_graph(weight.t()))
    assert result.named_data[0].data.data_ptr() == weight.data_ptr()
    assert result.named_data[0].key == content_key(weight.t().contiguous())


def test_equal_constants_are_named_once():
    builder = GraphBuilder()
    x = builder.input((3,))
    y = builder.binary(ops.BinaryKind.ADD, x, type(x).dense(builder.constant(torch.ones(3))))
    builder.output(builder.binary(ops.BinaryKind.MULTIPLY, y, type(x).dense(builder.constant(torch.ones(3)))))
    assert len(serialize(builder.graph).named_data) == 1


def test_the_same_graph_gives_the_same_bytes():
    assert serialize(_linear_graph()).blob == serialize(_linear_graph()).blob


def test_debug_handles_are_mapped_by_node():
    builder = GraphBuilder()
    x = builder.input((3,))
    for handle, kind in ((11, ops.UnaryKind.EXP), (12, ops.UnaryKind.ABS)):
        builder.debug_handle = handle
        x = builder.unary(kind, x)
    builder.output(x)
    result = serialize(builder.graph)
    assert result.debug_handles == {0: (11,), 1: (12,)}
    assert [node.debug_handle for node in parse(result.blob).xnodes] == [11, 12]


def test_too_many_arguments_are_refused():
    builder = GraphBuilder()
    for _ in range(4096):
        builder.output(builder.unary(ops.UnaryKind.EXP, builder.input((1,))))
    with pytest.raises(FormatError, match="at most 4096"):
        serialize(builder.graph)


def test_quantized_values_round_like_the_runtime_says(payload_of):
    from delegatekit_xnnpack.runtime import XnnpackRuntime

    format = Format(DataType.QINT8, PerTensorQuantization(0.5, 3))
    x, quantized, y = Value((5,)), Value((5,), format.datatype, quantization=format.quantization), Value((5,))
    nodes = [Node(ops.Convert(format), (x,), quantized), Node(ops.Convert(Format()), (quantized,), y)]
    graph = Graph([x], [y], nodes)
    runtime = XnnpackRuntime()
    handle = runtime.init(payload_of(graph))
    given, result = torch.tensor([0.1, 0.4, -3.2, 1e3, -1e3]), torch.empty(5)
    runtime.execute(handle, [given], [result])
    assert result.tolist() == [0.0, 0.5, -3.0, (127 - 3) * 0.5, (-128 - 3) * 0.5]


# -- corrupted blobs -------------------------------------------------------------------------------------------------


def test_a_sound_blob_is_valid(serialized, named):
    validate(serialized.blob, named, 2)


@pytest.mark.parametrize("length", [0, 8, 29, 40, 100])
def test_a_truncated_blob_is_refused(serialized, named, length):
    with pytest.raises(FormatError):
        validate(serialized.blob[:length], named, 2)


@pytest.mark.parametrize(
    ("offset", "content", "complaint"),
    [
        (4, b"XH01", "magic"),
        (36, b"XN02", "identifier"),
        (10, struct.pack("<I", 4), "the flatbuffer"),
        (10, struct.pack("<I", 1 << 30), "the flatbuffer"),
        (14, struct.pack("<I", 1 << 30), "the flatbuffer"),
        (18, struct.pack("<I", 32), "the constant section"),
        (22, struct.pack("<Q", 1), "the constant section"),
    ],
)
def test_a_wrong_header_is_refused(serialized, named, offset, content, complaint):
    blob = bytearray(serialized.blob)
    blob[offset : offset + len(content)] = content
    with pytest.raises(FormatError, match=complaint):
        validate(blob, named, 2)


def test_missing_and_short_constants_are_refused(serialized, named):
    key = next(iter(named))
    with pytest.raises(FormatError, match="which the program does not have"):
        validate(serialized.blob, {}, 2)
    with pytest.raises(FormatError, match="has a constant of 47 bytes"):
        validate(serialized.blob, {**named, key: named[key][:47]}, 2)


def test_a_wrong_number_of_arguments_is_refused(serialized, named):
    with pytest.raises(FormatError, match="has 2 arguments, is called with 3"):
        validate(serialized.blob, named, 3)


def _rewritten(serialized, change):
    from delegatekit_toolkit import flatbuffer

    graph = parse(serialized.blob)
    change(graph)
    body = flatbuffer.serialize(graph, b"XN01")
    end = 32 + len(body)
    return struct.pack("<4x4sHIIIQ", b"XH00", 30, 32, len(body), end, 0).ljust(32, b"\0") + body


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda g: setattr(g.xnodes[0].xnode_union, "input1_id", 99), "input1_id = 99 is not a value"),
        (lambda g: setattr(g.xnodes[0].xnode_union, "output_id", 99), "output_id = 99 is not a value"),
        (lambda g: setattr(g.xnodes[0].xnode_union, "filter_id", schema.NONE), "filter_id"),
        (lambda g: setattr(g.xnodes[0], "xnode_union", None), "has no operator"),
        (lambda g: setattr(g.xnodes[1].output_min_max, "output_max", -1.0), "empty interval"),
        (lambda g: setattr(g.xvalues[0].xvalue_union, "flags", 5), "has flags 5"),
        (lambda g: setattr(g.xvalues[0].xvalue_union, "datatype", 77), "has data type 77"),
        (lambda g: setattr(g.xvalues[0].xvalue_union, "num_dims", 3), "has 2 sizes for 3 axes"),
        (lambda g: setattr(g.xvalues[0].xvalue_union, "external_id", 1), "is argument 1, as another value"),
        (lambda g: setattr(g.xvalues[2].xvalue_union, "constant_buffer_idx", 9), "constant 9 of 3 does not exist"),
        (lambda g: setattr(g.xvalues[2].xvalue_union, "dims", [400, 3]), "has a constant of 48 bytes"),
        (lambda g: setattr(g.constant_data[1], "named_key", None), "has 48 bytes from 18446744073709551615 on, of 0"),
        (lambda g: setattr(g, "xvalues", None), "has no values or no nodes"),
    ],
)
def test_a_blob_that_would_mislead_the_runtime_is_refused(serialized, named, change, complaint):
    with pytest.raises(FormatError, match=complaint):
        validate(_rewritten(serialized, change), named, 2)


def test_an_empty_key_is_no_key(serialized, named):
    """The stock exporter writes one if the constant is in the blob, or does not exist."""
    blob = _rewritten(serialized, lambda g: setattr(g.constant_data[0], "named_key", ""))
    assert validate(blob, named, 2) == frozenset(named)


def test_random_mutations_give_a_format_error_or_nothing(serialized, named):
    generator, refused = random.Random(0), 0
    for _ in range(1000):
        blob = bytearray(serialized.blob)
        for _ in range(generator.randint(1, 4)):
            blob[generator.randrange(len(blob))] = generator.randrange(256)
        try:
            validate(blob, named, 2)
        except FormatError:
            refused += 1
    assert 500 < refused < 1000  # bytes of padding and of floats may change


@pytest.mark.slow
def test_blobs_of_the_stock_exporter_are_read():
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    import delegatekit
    from delegatekit.pte import read

    module, x = (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)).eval(),
        torch.randn(1, 3, 6, 6),
    )
    program = to_edge_transform_and_lower(torch.export.export(module, (x,)), partitioner=[XnnpackPartitioner()])
    data = program.to_executorch().buffer
    file = read(data)
    (delegate,) = file.program.execution_plan[0].delegates
    blob = file.delegate_blob(delegate)
    inputs, outputs = [TensorSpec("float32", tuple(x.shape))], [TensorSpec("float32", (1, 5))]
    reader.validate(testing.payload_of(bytes(blob), inputs, outputs, named_data=file.named_data))
    names = [type(node.xnode_union).__name__ for node in parse(blob).xnodes]
    assert names.count("Conv2d") == names.count("FullyConnected") == 1
    result = delegatekit.load(data)["forward"](x)
    torch.testing.assert_close(result, module(x), rtol=1e-4, atol=1e-5)
