"""Lets convolutions and poolings pad their input themselves."""

from __future__ import annotations

import math
from dataclasses import replace

from ..ir import operators as ops
from ..ir.graph import Graph


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
    """The rows and columns of `pad`, if they can be expressed as the consumer's own padding."""
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
    """True if no window can lie in the padding alone: its maximum would not be -inf but undefined."""
    total = pool.padding + padding
    return max(total.top, total.bottom) < pool.kernel[0] and max(total.left, total.right) < pool.kernel[1]
