"""Removes conversions: nodes between a dequantize and a quantize compute on the integers themselves.

The lowering writes a quantized program unchanged: conversions around operators on numbers, and weights as integers.
`fold_conversions` turns `convert(op(convert(a), convert(b)))` into `op(a, b)` wherever XNNPACK has the operator for
integers; the remaining conversions run inside the delegate, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from delegatekit_api import LoweringError
from delegatekit_toolkit.quantized import pack_nibbles

from ..ir import operators as ops
from ..ir.formats import numbers
from ..ir.graph import Graph, Node, Value
from ..ir.types import HALF_TYPES, LARGEST_BIAS, DataType, Format, PerChannelQuantization, PerTensorQuantization, static
from .unread import drop_unread

#: The range of the ratio of the input's scale (for products: of both inputs') to the output's. XNNPACK refuses products
#: with weights beyond that, and the other kernels compute wrong numbers (stock runtime of ExecuTorch 1.5.1, x86).
_MOST_OF_WEIGHTS = 256.0
_MOST_OF_CONVERSIONS = 128.0
_MOST_OF_ARITHMETIC = 2.0**16
_FLOAT32 = torch.finfo(torch.float32)


def fold_conversions(graph: Graph) -> None:
    """Compute on integers between conversions from and to them; give weights their operator's format."""
    _move_integers(graph)
    _compute_on_integers(graph)
    drop_unread(graph)
    settled: dict[tuple[Value, bool], Value] = {}
    for node in graph.nodes:
        _settle_weight(node, settled)


def float_reason(graph: Graph) -> str | None:
    """The reason why a quantized layer with folded conversions is computed in float; None if it is on the integers."""
    kinds = [node.operator for node in graph.nodes if node.output.datatype is DataType.FLOAT32]
    names = dict.fromkeys(_name(kind) for kind in kinds if not isinstance(kind, ops.Convert))
    return f"XNNPACK has no int8 kernel for it: it computes in float, by {', '.join(names)}" if names else None


def _name(operator: ops.Operator) -> str:
    kind = getattr(operator, "kind", None)
    return type(operator).__name__ if kind is None else str(kind.value)


def _move_integers(graph: Graph) -> None:
    """Let nodes that only move elements move the integers, and convert after them."""
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes.append(node)
        sources = _same_format(node) if node.operator.moves_elements else None
        if sources is None:
            continue
        format = sources[0].format
        moved = Value(node.output.shape, format.datatype, quantization=format.quantization, producer=node)
        back = Node(ops.Convert(Format()), (moved,), node.output, None, node.debug_handles)
        node.inputs, node.output, back.output.producer = sources, moved, back
        nodes.append(back)
    graph.nodes = nodes


def _compute_on_integers(graph: Graph) -> None:
    """Turn convert(op(convert(a), ...)) into op(a, ...) if nothing else reads the numbers between."""
    readers = graph.users()
    nodes: list[Node] = []
    equal: dict[Value, Value] = {}
    added: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        node.inputs = tuple(equal.get(value, value) for value in node.inputs)
        source = node.inputs[0]
        producer = source.producer
        if not _quantizes(node) or producer is None:
            nodes.append(node)
            continue
        integers = _dequantized(source)
        if integers is not None:
            if integers.format != node.output.format:
                if _ratio(integers.format, node.output.format) < _MOST_OF_CONVERSIONS:
                    node.inputs = (integers,)
                nodes.append(node)
            elif node.output in graph.outputs:
                nodes.append(node)
            else:
                equal[node.output] = integers
            continue
        inputs = None
        if len(readers[source]) == 1:
            inputs = _integer_inputs(producer, node.output.format)
        if inputs is None:
            nodes.append(node)
            continue
        if isinstance(producer.operator, ops.Concatenate):
            inputs, added[producer] = _in_one_format(inputs, node)
        producer.inputs, producer.output = inputs, node.output
        producer.debug_handles += node.debug_handles
        node.output.producer = producer
    graph.nodes = [item for node in nodes for item in (*added.get(node, ()), node)]


def _quantizes(node: Node) -> bool:
    return isinstance(node.operator, ops.Convert) and node.output.datatype is DataType.QINT8


def _dequantized(value: Value) -> Value | None:
    """The integers that a value was converted from."""
    producer = value.producer
    if producer is None or not isinstance(producer.operator, ops.Convert) or value.datatype is not DataType.FLOAT32:
        return None
    return None if producer.inputs[0].datatype in HALF_TYPES else producer.inputs[0]


def _integer_inputs(node: Node, target: Format) -> tuple[Value, ...] | None:
    """Inputs with which the node computes integers of the target's format; None if it cannot."""
    rule = _RULES.get(type(node.operator))
    return None if rule is None else rule(node, target)


def _weighted(node: Node, target: Format) -> tuple[Value, ...] | None:
    """Inputs of products with constant integers; the bias gets the scale of the sums."""
    x, weight, *bias = node.inputs
    source = _dequantized(x)
    if source is None or not isinstance(source.quantization, PerTensorQuantization):
        return None
    if weight.datatype not in (DataType.QINT8, DataType.QCINT8) or not _is_weight(weight, node.operator):
        return None
    if any(value.data is None for value in bias):
        return None
    if _largest_scale(weight) * _ratio(source.format, target) >= _MOST_OF_WEIGHTS:
        return None
    quantized = [_bias(value, source.quantization.scale, weight) for value in bias]
    return None if None in quantized else (source, weight, *quantized)  # type: ignore[arg-type]


def _bias(bias: Value, input_scale: float, weight: Value) -> Value | None:
    real = numbers(bias).reshape(bias.shape).double()  # type: ignore[arg-type]
    quantization: PerTensorQuantization | PerChannelQuantization
    if isinstance(weight.quantization, PerTensorQuantization):
        step: Any = input_scale * weight.quantization.scale
        quantization, datatype = PerTensorQuantization(step), DataType.QINT32
    else:
        assert isinstance(weight.quantization, PerChannelQuantization)
        step = input_scale * weight.quantization.scales.double()
        quantization, datatype = PerChannelQuantization(step.float(), 0), DataType.QCINT32
    integers = (real / step).round()
    if integers.abs().max() > LARGEST_BIAS:
        return None
    return Value(bias.shape, datatype, integers.to(torch.int32), quantization)


def _is_weight(weight: Value, operator: ops.Operator) -> bool:
    """True if zero points are 0 and scales are those of output channels."""
    match weight.quantization:
        case PerTensorQuantization(_, zero_point):
            return zero_point == 0
        case PerChannelQuantization(_, axis) if isinstance(operator, ops.FullyConnected):
            return axis == operator.transposed
    return True


def _largest_scale(weight: Value) -> float:
    if isinstance(weight.quantization, PerTensorQuantization):
        return weight.quantization.scale
    assert isinstance(weight.quantization, PerChannelQuantization)
    return float(weight.quantization.scales.max())


def _ratio(source: Format, target: Format) -> float:
    """The ratio of the source's scale to the target's."""
    return _scale(source) / _scale(target)


def _scale(format: Format) -> float:
    assert isinstance(format.quantization, PerTensorQuantization)
    return format.quantization.scale


def _same_format(node: Node, target: Format | None = None) -> tuple[Value, ...] | None:
    """Inputs of nodes that move or select elements and keep the integers: all have one format."""
    sources = _any_format(node, target)
    if sources is None or len({source.format for source in sources} | ({target} if target else set())) > 1:
        return None
    if isinstance(node.operator, ops.ConstantPad) and node.operator.fill != 0.0:
        return None  # the fill may not be representable as an integer
    return sources


def _any_format(node: Node, target: Format | None = None) -> tuple[Value, ...] | None:
    """Inputs of nodes that compute on integers of any scale."""
    sources = [_dequantized(value) for value in node.inputs]
    if any(source is None or source.datatype is not DataType.QINT8 for source in sources):
        return None
    return tuple(sources)  # type: ignore[arg-type]


def _in_one_format(inputs: tuple[Value, ...], target: Node) -> tuple[tuple[Value, ...], list[Node]]:
    """The values in the format of the target's output, and the conversions that this needs."""
    nodes, format = [], target.output.format
    converted: dict[Value, Value] = {}
    for value in inputs:
        if value not in converted and value.format != format:
            output = Value(value.shape, format.datatype, quantization=format.quantization)
            output.producer = Node(ops.Convert(format), (value,), output, None, target.debug_handles)
            nodes.append(output.producer)
            converted[value] = output
    return tuple(converted.get(value, value) for value in inputs), nodes


def _concatenated(node: Node, target: Format) -> tuple[Value, ...] | None:
    """Inputs of a concatenation: integers of other scales are converted before it."""
    found = [value if value.data is not None and value.quantization else _dequantized(value) for value in node.inputs]
    sources = tuple(value for value in found if value is not None and value.datatype is DataType.QINT8)
    if len(sources) < len(found) or max(_ratio(source.format, target) for source in sources) >= _MOST_OF_CONVERSIONS:
        return None
    return sources


def _leaky_relu(node: Node, target: Format) -> tuple[Value, ...] | None:
    sources = _any_format(node)
    steepest = max(1.0, abs(node.operator.negative_slope))  # type: ignore[attr-defined]
    if sources is None or steepest * _ratio(sources[0].format, target) >= _MOST_OF_CONVERSIONS:
        return None
    return sources


def _unary(node: Node, target: Format) -> tuple[Value, ...] | None:
    kind = node.operator.kind  # type: ignore[attr-defined]
    return _any_format(node, target) if kind.on_integers else None


def _binary(node: Node, target: Format) -> tuple[Value, ...] | None:
    kind = node.operator.kind  # type: ignore[attr-defined]
    found = [_operand(value) for value in node.inputs] if kind.on_integers else [None]
    sources = tuple(value for value in found if value is not None)
    if len(sources) < len(found) or all(value.data is not None for value in sources):
        return None
    ratios = [_ratio(source.format, target) for source in sources]
    if kind is ops.BinaryKind.MULTIPLY:
        ratios = [ratios[0] * _scale(sources[1].format)]
    return sources if max(ratios) < _MOST_OF_ARITHMETIC else None


def _operand(value: Value) -> Value | None:
    """The integers that an operand was converted from, or that represent a constant."""
    if value.data is None:
        source = _dequantized(value)
        return source if source is not None and source.datatype is DataType.QINT8 else None
    if value.quantization is not None:
        return value if value.datatype is DataType.QINT8 else None
    number = float(value.data.reshape(-1)[0])
    if value.datatype is not DataType.FLOAT32 or not (value.data == number).all():
        return None
    if not _FLOAT32.tiny <= abs(number) <= _FLOAT32.max:
        return None
    ones = torch.full(static(value.shape), 1 if number > 0 else -1, dtype=torch.int8)
    return Value(value.shape, DataType.QINT8, ones, PerTensorQuantization(abs(number)))


def _pool(node: Node, target: Format) -> tuple[Value, ...] | None:
    kind = node.operator.kind  # type: ignore[attr-defined]
    return _same_format(node, target) if kind is ops.PoolKind.MAXIMUM else None


_RULES: dict[type[ops.Operator], Callable[[Node, Format], tuple[Value, ...] | None]] = {
    ops.FullyConnected: _weighted,
    ops.Convolution: _weighted,
    ops.Binary: _binary,
    ops.Unary: _unary,
    ops.LeakyRelu: _leaky_relu,
    ops.Elu: _any_format,
    ops.GlobalAveragePool: _any_format,
    ops.Clamp: _same_format,
    ops.Pool: _pool,
    ops.Concatenate: _concatenated,
    ops.ResizeBilinear: _same_format,
}


def _settle_weight(node: Node, settled: dict[tuple[Value, bool], Value]) -> None:
    """Give a constant operand the format that matches the others': integers only with integers.

    `settled` maps constants to their form with numbers, and with integers of scales computed in each call.
    """
    computed = [value.datatype for value in node.inputs if value.data is None]
    integers = computed[0] if computed else DataType.FLOAT32
    rows = integers is DataType.QDINT8
    for position, value in enumerate(node.inputs):
        if value.data is None or value.quantization is None or integers is DataType.QINT8:
            continue
        if (value, rows) not in settled:
            settled[value, rows] = (
                _beside_rows(node, value) if rows else Value(value.shape, data=numbers(value).reshape(value.shape))  # type: ignore[arg-type]
            )
        node.inputs = (*node.inputs[:position], settled[value, rows], *node.inputs[position + 1 :])
    if node.operator.moves_elements:
        # Of constants that became numbers: the node was made when they were integers.
        format = node.operator.output_format(*(value.format for value in node.inputs))
        node.output.datatype, node.output.quantization = format.datatype, format.quantization
    if rows and node.inputs[1].quantization is None:
        raise LoweringError("rows quantized in each call meet a weight that is not", where=f"XNNPACK {node.operator}")


def _beside_rows(node: Node, weight: Value) -> Value:
    """The weight for rows that are quantized in each call: XNNPACK requires a scale for each channel there."""
    assert weight.data is not None
    match weight.quantization:
        case PerTensorQuantization(scale, _):
            scales = torch.full((node.output.shape[-1],), scale)  # type: ignore[arg-type]
            return Value(weight.shape, DataType.QCINT8, weight.data, PerChannelQuantization(scales, 0))
    if weight.datatype is DataType.QCINT4 and static(weight.shape)[1] % 2:
        # XNNPACK misreads rows with an odd number of nibbles.
        return Value(weight.shape, DataType.QCINT8, weight.data, weight.quantization)
    if weight.datatype in (DataType.QCINT4, DataType.QBINT4) and weight.data.dtype is not torch.uint8:
        return Value(weight.shape, weight.datatype, pack_nibbles(weight.data), weight.quantization)
    return weight
