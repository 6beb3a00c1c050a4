"""Graph.verify finds violations of what the runtime assumes."""

from __future__ import annotations

import math

import pytest
import torch

from delegatekit_api import LoweringError
from delegatekit_toolkit.sizes import Dynamic
from delegatekit_xnnpack.ir import operators as ops
from delegatekit_xnnpack.ir.graph import Graph, Node, Value
from delegatekit_xnnpack.ir.types import Bounds, DataType, constant_bytes


def _graph(operator, *shapes, output, clamp=None, constants=()):
    values = [
        Value(shape, data=torch.zeros(shape) if index in constants else None) for index, shape in enumerate(shapes)
    ]
    result = Value(output)
    inputs = [value for value in values if value.data is None]
    return Graph(inputs, [result], [Node(operator, tuple(values), result, clamp)])


def test_a_sound_graph_passes():
    _graph(ops.FullyConnected(), (2, 3), (4, 3), (4,), output=(2, 4), clamp=Bounds(0.0, math.inf)).verify()


@pytest.mark.parametrize(
    ("graph", "complaint"),
    [
        (_graph(ops.FullyConnected(), (2, 3), (4, 5), output=(2, 4)), "does not take inputs of shapes"),
        (_graph(ops.FullyConnected(), (2, 3), (4, 3), (5,), output=(2, 4)), "does not take inputs of shapes"),
        (_graph(ops.Binary(ops.BinaryKind.ADD), (2, 3), (2, 4), output=(2, 3)), "do not broadcast"),
        (_graph(ops.Unary(ops.UnaryKind.EXP), (2, 3), output=(3, 2)), "has output shape (3, 2), computes (2, 3)"),
        (_graph(ops.Reshape((7,)), (2, 3), output=(7,)), "does not take inputs of shapes"),
        (_graph(ops.Transpose((0, 0)), (2, 2), output=(2, 2)), "does not take inputs of shapes"),
        (_graph(ops.Slice((1,), (3,)), (3,), output=(3,)), "does not take inputs of shapes"),
        (_graph(ops.Concatenate(2), (2, 3), (2, 3), output=(4, 3)), "does not take inputs of shapes"),
        (_graph(ops.Concatenate(1), (2, 3), (3, 3), output=(2, 6)), "does not take inputs of shapes"),
        (_graph(ops.GlobalAveragePool(), (3, 4), output=(1, 4)), "does not take inputs of shapes"),
        (_graph(ops.GlobalAveragePool(), (2, 3, 4), output=(4,)), "has output shape (4,), computes (1, 1, 4)"),
        (_graph(ops.Reshape((0, 4)), (2, 3), output=(1, 4)), "does not take inputs of shapes"),
        (_graph(ops.Reshape((0, 0, 2)), (2, 3), output=(1, 3, 2)), "does not take inputs of shapes"),
        (_graph(ops.Reshape((3,)), (Dynamic((3, 1)),), output=(3,)), "does not take inputs of shapes"),
        (_graph(ops.Unary(ops.UnaryKind.EXP), (Dynamic((3, 0)),), output=(Dynamic((3, 0)),)), "without elements"),
        (_graph(ops.Binary(ops.BinaryKind.ADD), (Dynamic((3, 1)),), (3,), output=(3,)), "do not broadcast"),
        (
            _graph(ops.BatchMatrixMultiply(transposed=False), (2, 3, 4), (2, 3, 4), output=(2, 3, 4)),
            "does not take inputs of shapes",
        ),
        (_graph(ops.Unary(ops.UnaryKind.EXP), (1,) * 7, output=(1,) * 7), "rank 7; XNNPACK allows 6"),
        (_graph(ops.Unary(ops.UnaryKind.EXP), (2, 0), output=(2, 0)), "without elements"),
        (_graph(ops.Clamp(), (3,), output=(3,)), "has no clamp bounds"),
        (_graph(ops.Clamp(), (3,), output=(3,), clamp=Bounds(1.0, 0.0)), "empty interval"),
        (_graph(ops.Clamp(), (3,), output=(3,), clamp=Bounds(math.nan, 0.0)), "empty interval"),
        (_graph(ops.Unary(ops.UnaryKind.EXP), (3,), output=(3,), clamp=Bounds(0.0, 1.0)), "cannot clamp its result"),
    ],
)
def test_an_unsound_node_is_named(graph, complaint):
    with pytest.raises(LoweringError) as caught:
        graph.verify()
    assert complaint in str(caught.value)


def test_a_constant_of_the_wrong_size_is_found():
    graph = _graph(ops.Binary(ops.BinaryKind.ADD), (2, 3), (2, 3), output=(2, 3), constants={1})
    graph.nodes[0].inputs[1].data = torch.zeros(5)
    with pytest.raises(LoweringError, match="constant of 20 bytes where \\(2, 3\\) needs 24"):
        graph.verify()


def test_a_value_read_before_it_is_computed_is_found():
    graph = _graph(ops.Unary(ops.UnaryKind.EXP), (3,), output=(3,))
    graph.inputs.clear()
    with pytest.raises(LoweringError, match="reads a value before it is computed"):
        graph.verify()


def test_outputs_must_be_computed_once_and_differ_from_inputs():
    graph = _graph(ops.Unary(ops.UnaryKind.EXP), (3,), output=(3,))
    for outputs in ([graph.inputs[0]], [*graph.outputs, *graph.outputs], [Value((3,))]):
        with pytest.raises(LoweringError):
            Graph(graph.inputs, outputs, graph.nodes).verify()
    with pytest.raises(LoweringError, match="defined already"):
        Graph(graph.inputs, graph.outputs, graph.nodes * 2).verify()


@pytest.mark.parametrize(
    ("datatype", "shape", "size"),
    [
        (DataType.FLOAT32, (2, 3), 24),
        (DataType.FLOAT32, (), 4),
        (DataType.FLOAT16, (2, 3), 12),
        (DataType.QINT8, (2, 3), 6),
        (DataType.QCINT4, (2, 3), 4),  # rows of 3 nibbles take 2 bytes
    ],
)
def test_sizes_of_constants(datatype, shape, size):
    assert constant_bytes(datatype, shape) == size
