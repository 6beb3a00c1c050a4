"""Clean-ups of the finished graph: fold clamps and paddings into their neighbours, drop what nobody reads.

Each pass takes the graph, changes it in place, and is linear in its nodes.
"""

from __future__ import annotations

import math
from dataclasses import replace

from . import operators as ops
from .blocking import block_products, split_channels
from .graph import DataType, Graph, Node, Value
from .options import BLOCK_BYTES


def optimise(graph: Graph, block_bytes: int = BLOCK_BYTES, *, exact: bool = False) -> None:
    """All passes, in the order in which they help each other; if `exact`, none that loses a NaN.

    For `block_bytes`, see `blocking`.
    """
    fold_pads(graph)
    drop_unread(graph)
    block_products(graph, block_bytes)
    drop_unread(graph)
    if not exact:
        clamp_in_half_precision(graph)
    fold_clamps(graph)
    split_channels(graph, block_bytes)


def fold_pads(graph: Graph) -> None:
    """Let convolutions and poolings pad their input themselves: zeros for the former, -inf for maximum pooling."""
    for node in graph.nodes:
        operator = node.operator
        if not isinstance(operator, ops.Convolution | ops.Pool):
            continue
        producer = node.inputs[0].producer
        if producer is None or not isinstance(producer.operator, ops.ConstantPad):
            continue
        padding = _foldable(producer.operator, operator)
        if padding is not None:
            node.operator = replace(operator, padding=operator.padding + padding)
            node.inputs = (producer.inputs[0], *node.inputs[1:])
            node.debug_handles = producer.debug_handles + node.debug_handles


def _foldable(pad: ops.ConstantPad, consumer: ops.Convolution | ops.Pool) -> ops.Padding | None:
    """The rows and columns of `pad`, if the consumer's own padding means the same."""
    if pad.before[0] or pad.after[0] or pad.before[3] or pad.after[3]:
        return None
    if isinstance(consumer, ops.Convolution):
        neutral = consumer.kind is not ops.ConvolutionKind.TRANSPOSED and pad.fill == 0.0
    else:
        neutral = consumer.kind is ops.PoolKind.MAXIMUM and pad.fill == -math.inf
    if not neutral:
        return None
    padding = ops.Padding(top=pad.before[1], right=pad.after[2], bottom=pad.after[1], left=pad.before[2])
    if isinstance(consumer, ops.Pool) and not _has_real_elements(consumer, padding):
        return None
    return padding


def _has_real_elements(pool: ops.Pool, padding: ops.Padding) -> bool:
    """Whether no window can lie in the padding alone: its maximum would not be -inf but undefined."""
    total = pool.padding + padding
    return max(total.top, total.bottom) < pool.kernel[0] and max(total.left, total.right) < pool.kernel[1]


def clamp_in_half_precision(graph: Graph) -> None:
    """Clamp float16 numbers as they are where the node before can do it, instead of between two conversions.

    The clamps of float16 make the lower bound of NaN.
    """
    readers = graph.users()
    outputs = set(graph.outputs)

    def only_reader(value: Value) -> Node | None:
        found = readers.get(value, [])
        return found[0] if len(found) == 1 and value not in outputs else None

    for node in graph.nodes:
        if not isinstance(node.operator, ops.Clamp) or node.output.datatype is not DataType.FLOAT32:
            continue
        widens, narrows = node.inputs[0].producer, only_reader(node.output)
        if widens is None or narrows is None or only_reader(node.inputs[0]) is None:
            continue
        source = widens.inputs[0]
        alike = DataType.FLOAT16 is source.datatype is narrows.output.datatype
        if not alike or source.producer is None or not source.producer.operator.fuses_clamp or not only_reader(source):
            continue
        node.inputs, node.output = (source,), narrows.output
        node.output.producer = node
        narrows.output = Value(node.output.shape, DataType.FLOAT16, producer=narrows)
    drop_unread(graph)


def fold_clamps(graph: Graph) -> None:
    """Let a node clamp its own result where the clamp is the only reader."""
    readers = graph.users()
    outputs = set(graph.outputs)
    folded: set[Node] = set()
    for node in graph.nodes:
        producer = node.inputs[0].producer
        if not isinstance(node.operator, ops.Clamp) or producer is None or node.clamp is None:
            continue
        if not (producer.operator.fuses_clamp or producer.operator.needs_clamp):
            continue
        if len(readers[node.inputs[0]]) > 1 or node.inputs[0] in outputs:
            continue
        producer.clamp = node.clamp if producer.clamp is None else producer.clamp.then(node.clamp)
        producer.output = node.output
        producer.debug_handles += node.debug_handles
        node.output.producer = producer
        folded.add(node)
    graph.nodes = [node for node in graph.nodes if node not in folded]


def drop_unread(graph: Graph) -> None:
    """Remove nodes whose result is neither read nor returned."""
    wanted: set[Value] = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.output in wanted:
            wanted.update(node.inputs)
            kept.append(node)
    graph.nodes = kept[::-1]
