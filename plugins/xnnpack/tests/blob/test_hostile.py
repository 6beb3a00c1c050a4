"""Crafted blobs: well-formed, but made for out-of-bounds reads and writes in XNNPACK. All are refused at load."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from delegatekit_api import DelegatePayload, FormatError, PreprocessResult, TensorSpec
from delegatekit_toolkit import flatbuffer, testing
from delegatekit_toolkit.quantized import pack_nibbles
from delegatekit_toolkit.sizes import Dynamic
from delegatekit_xnnpack.blob import schema
from delegatekit_xnnpack.blob.program import CallSizes
from delegatekit_xnnpack.blob.reader import parse, validate
from delegatekit_xnnpack.blob.writer import SerializedGraph, serialize
from delegatekit_xnnpack.ir import operators as ops
from delegatekit_xnnpack.ir.builder import GraphBuilder
from delegatekit_xnnpack.ir.graph import Graph, Node, Value
from delegatekit_xnnpack.ir.types import (
    DataType,
    Format,
    PerChannelQuantization,
    PerGroupQuantization,
    PerRowQuantization,
    PerTensorQuantization,
)

Change = Callable[[schema.XNNGraph], object]


def _floats() -> Graph:
    """Values: x, y, the filter, its bias, the convolution's and the pool's results, a constant to add."""
    x, y = Value((1, 8, 8, 3)), Value((1, 3, 3, 4))
    weight, bias = Value((4, 3, 3, 3), data=torch.ones(4, 3, 3, 3)), Value((4,), data=torch.ones(4))
    features, pooled, scale = Value((1, 6, 6, 4)), Value((1, 3, 3, 4)), Value((4,), data=torch.arange(4.0))
    convolution = ops.Convolution(
        ops.ConvolutionKind.REGULAR, ops.Padding(), (3, 3), (1, 1), (1, 1), groups=1, group_inputs=3, group_outputs=4
    )
    nodes = [
        Node(convolution, (x, weight, bias), features),
        Node(ops.Pool(ops.PoolKind.MAXIMUM, ops.Padding(), (2, 2), (2, 2)), (features,), pooled),
        Node(ops.Binary(ops.BinaryKind.ADD), (pooled, scale), y),
    ]
    return Graph([x], [y], nodes)


def _integers() -> Graph:
    """A layer of int8 with a scale for each output, and one of 4 bits with groups, on rows quantized in each call."""
    x, y, z = Value((2, 32)), Value((2, 8)), Value((2, 8))
    static = Format(DataType.QINT8, PerTensorQuantization(0.1, 3))
    dynamic = Format(DataType.QDINT8, PerRowQuantization(1))
    rounded = Value((2, 32), static.datatype, quantization=static.quantization)
    rows = Value((2, 32), dynamic.datatype, quantization=dynamic.quantization)
    integers = (torch.arange(256, dtype=torch.int32) % 16 - 8).to(torch.int8).reshape(8, 32)
    scales = PerChannelQuantization(torch.full((8,), 0.1), 0)
    weight = Value((8, 32), DataType.QCINT8, data=integers, quantization=scales)
    groups = PerGroupQuantization(torch.full((8, 1), 0.1), 32)
    narrow = Value((8, 32), DataType.QBINT4, data=pack_nibbles(integers), quantization=groups)
    result = Value((2, 8), static.datatype, quantization=static.quantization)
    nodes = [
        Node(ops.Convert(static), (x,), rounded),
        Node(ops.Convert(dynamic), (x,), rows),
        Node(ops.FullyConnected(), (rounded, weight), result),
        Node(ops.Convert(Format()), (result,), y),
        Node(ops.FullyConnected(), (rows, narrow), z),
    ]
    return Graph([x], [y, z], nodes)


def _payload(graph: Graph, change: Change = lambda graph: None, **specs: Any) -> DelegatePayload:
    made = serialize(graph)
    sides = ([TensorSpec("float32", tuple(map(int, v.shape))) for v in side] for side in (graph.inputs, graph.outputs))
    compiled = PreprocessResult(_changed(made, change), named_data=made.named_data)
    return replace(testing.payload_of(compiled, *sides), **specs)


def _changed(made: SerializedGraph, change: Change) -> bytes:
    graph = parse(made.blob)
    change(graph)
    body = flatbuffer.serialize(graph, b"XN01")
    end = 32 + len(body)
    return struct.pack("<4x4sHIIIQ", b"XH00", 30, 32, len(body), end, 0).ljust(32, b"\0") + body


def _tensor(graph: schema.XNNGraph, index: int) -> Any:
    value: Any = (graph.xvalues or [])[index].xvalue_union
    return getattr(value, "tensor_value", value)


def _value(index: int, **fields: Any) -> Change:
    return lambda graph: [setattr(_tensor(graph, index), name, content) for name, content in fields.items()]


def _node(index: int, **fields: Any) -> Change:
    return lambda graph: [
        setattr((graph.xnodes or [])[index].xnode_union, name, content) for name, content in fields.items()
    ]


def _quantization(kind: type, **fields: Any) -> Change:
    def change(graph: schema.XNNGraph) -> None:
        tables = [getattr(item.xvalue_union, "quant_params", None) for item in graph.xvalues or ()]
        table = next(item for item in tables if isinstance(item, kind))
        for name, content in fields.items():
            setattr(table, name, content)

    return change


X, Y, WEIGHT, BIAS, ADDED = 0, 1, 2, 3, 4


def _index(graph: Graph, wanted: Callable[[Value], bool]) -> int:
    return next(index for index, value in enumerate(graph.values()) if wanted(value))


def test_the_graphs_themselves_are_taken() -> None:
    for graph in (_floats(), _integers()):
        program = validate(_payload(graph))
        assert len(program.nodes) == len(graph.nodes)
        assert program.keys == {item.key for item in serialize(graph).named_data}


def _in_place(graph: schema.XNNGraph) -> None:
    """The addition writes into its constant, and the output is that of the pool."""
    node: Any = (graph.xnodes or [])[2].xnode_union
    node.output_id = node.input2_id


def _reversed(graph: schema.XNNGraph) -> None:
    assert graph.xnodes is not None
    graph.xnodes.reverse()


def _twice(graph: schema.XNNGraph) -> None:
    assert graph.xnodes is not None
    graph.xnodes.append(graph.xnodes[0])


def _second_id(graph: schema.XNNGraph) -> None:
    _tensor(graph, 5).id_out = _tensor(graph, 4).id_out


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_in_place, "writes .* which is a constant"),
        (_node(0, output_id=X), "writes .* which is an input"),
        (_reversed, "reads .* which is not computed before"),
        (_twice, "writes .* which is the result of .*node 0"),
        (_second_id, "has the id .* of another value"),
        (lambda graph: graph.xnodes.pop(), "returns 1, which is never computed"),
        (_value(X, constant_buffer_idx=1), "is a constant, and computed or an argument as well"),
        (_value(WEIGHT, external_id=0), "has flags 0 and the argument 0"),
        (_value(X, external_id=schema.NONE), "has flags 1 and the argument 4294967295"),
        (_value(X, flags=2), "reads 0, which is not computed before"),
        (_value(WEIGHT, id_out=schema.NONE), "the id that stands for no value"),
    ],
)
def test_a_value_with_no_source_or_two_is_refused(change: Change, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        validate(_payload(_floats(), change))


@pytest.mark.parametrize("kind", ops.PoolKind)
def test_pools_as_stock_writes_them_are_taken(kind: ops.PoolKind) -> None:
    """With a flag that has no effect on a window, and averages without a dilation."""
    graph = _floats()
    graph.nodes[1] = replace(graph.nodes[1], operator=ops.Pool(kind, ops.Padding(), (2, 2), (2, 2)))
    without = {"dilation_height": 0, "dilation_width": 0} if kind is ops.PoolKind.AVERAGE else {}
    validate(_payload(graph, _node(1, flags=schema.KEEP_DIMS, **without)))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_value(WEIGHT, dims=[4, 0, 3, 3]), "each must be at least 1"),
        (_value(WEIGHT, dims=[0, 1 << 31, 1 << 31, 1 << 31]), "each must be at least 1"),
        (_value(WEIGHT, dims=[1 << 31, 1 << 31, 1 << 31, 1 << 31]), "more than 64 GiB"),
        (_value(X, dims=[1] * 7, num_dims=7), "has 7 axes: XNNPACK allows 6"),
        (_value(WEIGHT, dims=[4, 3, 3, 2]), "does not fit its inputs"),
        (_value(BIAS, dims=[2, 2], num_dims=2), "does not fit its inputs"),
        (_node(0, subsampling_height=0), "stride or dilation of 0"),
        (_node(0, dilation_width=0), "stride or dilation of 0"),
        (_node(0, kernel_height=0), "stride or dilation of 0"),
        (_node(0, groups=0), "does not fit its inputs"),
        (_node(0, group_input_channels=0), "does not fit its inputs"),
        (_node(0, group_output_channels=0), "does not fit its inputs"),
        (_node(0, groups=1 << 31, group_input_channels=1 << 31), "does not fit its inputs"),
        (_node(0, padding_top=0xFFFFFFFF), "more than 64 GiB|but declares"),
        (_node(0, adjustment_height=9), "attributes that no convolution has"),
        (_node(0, flags=4), "has flags 4"),
        (_node(1, padding_left=2), "lie in the padding alone"),
        (_node(1, pooling_height=1 << 30), "does not fit|each must be"),
        (_node(2, flags=1), "has flags 1"),
    ],
)
def test_sizes_that_do_not_fit_together_or_overflow_are_refused(change: Change, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        validate(_payload(_floats(), change))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_quantization(schema.PerChannelQuant, num_scales=100_000), "has 100000 scales for 8 channels"),
        (_quantization(schema.PerChannelQuant, num_scales=1), "has 1 scales for 8 channels"),
        (_quantization(schema.PerChannelQuant, scale_buffer_idx=99), "constant 99 of .* does not exist"),
        (_quantization(schema.PerChannelQuant, scale_buffer_idx=0), "has 0 scales for 8 channels"),
        (_quantization(schema.PerChannelQuant, scale_buffer_idx=0, scale=[0.1] * 7), "has 7 scales for 8 channels"),
        (_quantization(schema.PerChannelQuant, channel_dim=2), "scales along axis 2 of 2"),
        (_quantization(schema.PerChannelQuant, channel_dim=-1), "scales along axis -1 of 2"),
        (_quantization(schema.PerChannelQuant, channel_dim=1, num_scales=32), "needs 128"),
        (_quantization(schema.PerChannelGroupQuant, group_size=0), "groups of 0"),
        (_quantization(schema.PerChannelGroupQuant, group_size=-32), "groups of -32"),
        (_quantization(schema.PerChannelGroupQuant, group_size=64), "groups of 64"),
        (_quantization(schema.PerChannelGroupQuant, num_scales=7), "has 7 scales for 8 channels or groups"),
        (_quantization(schema.PerChannelGroupQuant, scale_buffer_idx=0, scale=[0.1] * 8), "scales for 8 channels"),
        (_quantization(schema.PerTensorQuant, zero_point=128), "has the zero point 128"),
        (_quantization(schema.PerTensorQuant, scale=0.0), "has the scale 0"),
        (_quantization(schema.PerTensorQuant, scale=float("nan")), "has the scale nan"),
        (_quantization(schema.PerTensorQuant, scale=-1.0), "has the scale -1.0"),
        (_quantization(schema.PerTokenDynamicQuant, num_nonbatch_dims=3), "its last 3 of 2 axes"),
        (_quantization(schema.PerTokenDynamicQuant, num_nonbatch_dims=-1), "its last -1 of 2 axes"),
    ],
)
def test_quantization_that_does_not_fit_its_value_is_refused(change: Change, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        validate(_payload(_integers(), change))


def test_scale_data_that_is_too_short_is_refused() -> None:
    payload = _payload(_integers())
    sizes = {key: len(data) for key, data in payload.named_data.items()}
    for key, size in sizes.items():
        short = {**payload.named_data, key: payload.named_data[key][: size - 1]}
        with pytest.raises(FormatError, match=f"has a constant of {size - 1} bytes"):
            validate(_payload(_integers(), named_data=short))
    assert sorted(sizes.values()) == [16, 32, 128, 256]  # scales of groups and channels, both weights


@pytest.mark.parametrize(
    ("datatype", "complaint"),
    [
        (DataType.QINT8, "has data type 3 with no quantization"),
        (DataType.QCINT8, "has data type 6 with no quantization"),
        (DataType.INT32, "has values of several types"),
        (DataType.FLOAT16, "has values of several types"),
        (11, "has data type 11"),
    ],
)
def test_types_that_xnnpack_would_take_for_others_are_refused(datatype: int, complaint: str) -> None:
    graph = _floats()
    index = _index(graph, lambda value: value.shape == (1, 6, 6, 4))
    with pytest.raises(FormatError, match=complaint):
        validate(_payload(graph, _value(index, datatype=int(datatype))))


def test_a_filter_that_is_computed_is_refused() -> None:
    def computed(graph: schema.XNNGraph) -> None:
        _tensor(graph, WEIGHT).constant_buffer_idx = 0

    with pytest.raises(FormatError, match="a filter or bias that is not a constant"):
        validate(_payload(_floats(), computed))


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec("float32", (1, 8, 8, 2)),
        TensorSpec("float32", (1, 8, 3)),
        TensorSpec("float32", (1, 3, 8, 8)),
        TensorSpec("float32", (1, 8, 8, 3), dim_order=(0, 3, 1, 2)),
        TensorSpec("int8", (1, 8, 8, 3)),
        TensorSpec("int64", (1, 8, 8, 3)),
        TensorSpec("bool", (1, 8, 8, 3)),
    ],
)
def test_arguments_that_are_not_the_callers_are_refused(spec: TensorSpec) -> None:
    with pytest.raises(FormatError, match=r"input 0 is float32 .* in the program"):
        validate(_payload(_floats(), inputs=(spec,)))


def test_a_channels_last_argument_is_declared_as_it_lies_in_memory() -> None:
    spec = TensorSpec("float32", (1, 3, 8, 8), dim_order=(0, 2, 3, 1))
    assert validate(_payload(_floats(), inputs=(spec,))).nodes


def test_an_input_and_an_output_cannot_change_places() -> None:
    def swapped(graph: schema.XNNGraph) -> None:
        _tensor(graph, X).external_id, _tensor(graph, Y).external_id = 1, 0

    with pytest.raises(FormatError, match="argument 0: is an output, for the program an input"):
        validate(_payload(_floats(), swapped))


def test_concatenation_reads_as_many_inputs_as_its_name_says() -> None:
    builder = GraphBuilder()
    first, second = builder.input((2, 3)), builder.input((2, 3))
    y = Value((2, 6))
    builder.graph.nodes.append(Node(ops.Concatenate(1), (first.value, second.value), y))
    builder.graph.outputs.append(y)
    validate(_payload(builder.graph, _node(0, input5_id=0)))  # unread fields may have any value
    with pytest.raises(FormatError, match="input2_id = 4294967295 is not a value"):
        validate(_payload(builder.graph, _node(0, input2_id=schema.NONE)))


def test_indices_of_maxima_have_32_bits() -> None:
    """This package never writes the node; stock declares any such type for indices that the caller gets in 64 bits."""
    pool = ops.Pool(ops.PoolKind.MAXIMUM, ops.Padding(), (1, 6), (1, 6))
    x, y, places = Value((1, 7, 6, 4)), Value((1, 7, 1, 4)), Value((1, 7, 1, 4))
    graph = Graph([x], [y, places], [Node(pool, (x,), y), Node(pool, (x,), places)])
    outputs = (TensorSpec("float32", (1, 7, 1, 4)), TensorSpec("int64", (1, 7, 1, 4)))

    def both(datatype: DataType) -> Change:
        def change(written: schema.XNNGraph) -> None:
            fields = {"input_id": 0, "output_value_id": 1, "output_index_id": 2}
            node = schema.NODE_TABLES["ArgMaxPooling2d"](pooling_height=1, pooling_width=6, **fields)
            written.xnodes = [schema.XNode(xnode_union=node)]
            _tensor(written, 2).datatype = int(datatype)

        return change

    for datatype in (DataType.FLOAT32, DataType.INT32):
        validate(_payload(graph, both(datatype), outputs=outputs))
    with pytest.raises(FormatError, match="has indices of type FLOAT16"):
        validate(_payload(graph, both(DataType.FLOAT16), outputs=outputs))
    with pytest.raises(FormatError, match=r"output 1 is int64 or int32 .* in the program float32"):
        validate(_payload(graph, both(DataType.INT32)))


def test_the_sizes_of_a_call_must_fit_the_blob() -> None:
    builder = GraphBuilder()
    x, y = builder.input((Dynamic((5, 1, 2)), 3)), builder.input((3,))
    builder.output(builder.binary(ops.BinaryKind.ADD, x, y))
    wide = TensorSpec("float32", (5, 8), dynamic=True)
    specs = {"inputs": (wide, TensorSpec("float32", (3,))), "outputs": (wide,)}
    made = serialize(builder.graph)
    payload = testing.payload_of(made.blob, specs["inputs"], specs["outputs"])
    sizes = CallSizes(validate(payload), payload)
    for _ in range(2):
        sizes.check([(4, 3), (3,)])
        with pytest.raises(FormatError, match="do not broadcast"):
            sizes.check([(4, 8), (3,)])
