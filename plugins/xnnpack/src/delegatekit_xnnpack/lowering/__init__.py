"""From ATen to XNNPACK: each operator of the support table has a small function here that adds its nodes.

`build_graph` turns a partition into an XNNPACK graph; the functions rely on the support table's checks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import Node

from delegatekit_api import QUANTIZE, Call, LoweringError, ProgramView, describe_node, operator_name
from delegatekit_api.quantization import dynamic_quantization_of, quantization_of

from ..arguments import shape_of
from ..formats import activation_format
from ..graph import Format, Graph
from ..layout import Tensor, channels_last, inverse
from ..options import XnnpackOptions
from ..precision import FLOATS
from . import elementwise, functions, linear, quantization, reduction, shape, spatial, steps
from .context import Lowering, ProgramBuilder

__all__ = ["LOWERINGS", "build_graph", "build_layer"]

#: Operator name -> the function that lowers it.
LOWERINGS: dict[str, Lowering] = {
    **elementwise.LOWERINGS,
    **functions.LOWERINGS,
    **linear.LOWERINGS,
    **quantization.LOWERINGS,
    **reduction.LOWERINGS,
    **shape.LOWERINGS,
    **spatial.LOWERINGS,
    **steps.LOWERINGS,
}


def build_graph(view: ProgramView, options: XnnpackOptions = XnnpackOptions()) -> Graph:  # noqa: B008
    """Lower a partition's program, node by node.

    Raises LoweringError for an operator that the support table would not have taken.
    """
    builder = ProgramBuilder(view, options)
    for node in view.inputs:
        builder.define(node, builder.input(shape_of(node), _input_format(node, view)))
    _lower(builder, list(view.graph.nodes))
    for result in view.outputs:
        if result is None:
            raise LoweringError("a delegate returns tensors only", where="outputs of the partition")
        builder.output(builder.stored_tensor(result))
    return builder.graph


def build_layer(layer: Sequence[Call], options: XnnpackOptions) -> Graph:
    """Lower some calls of a program, in graph order, that begin with dequantizes and end with quantizes.

    Images come as the layers before would leave them, with the channels last. Raises LoweringError like `build_graph`.
    """
    view = layer[0].program
    builder = ProgramBuilder(view, options)
    nodes = [call.node for call in layer]
    for operand in dict.fromkeys(item for call in layer for item in call.operands if item.node not in nodes):
        if not operand.is_constant:
            shape, order = shape_of(operand.node), tuple(range(operand.rank))
            if operand.rank == 4:
                order = channels_last(4)
            stored = tuple(shape[axis] for axis in inverse(order))
            value = builder.input(stored, _input_format(operand.node, view)).value
            builder.define(operand.node, Tensor(value, order))
    _lower(builder, nodes)
    for call in layer:
        if call.operator in QUANTIZE:
            builder.output(builder.stored_tensor(call.node))
    return builder.graph


def _lower(builder: ProgramBuilder, nodes: Sequence[Node]) -> None:
    # What finds parameters in each call is part of one conversion, which its last node becomes.
    chains = filter(None, map(dynamic_quantization_of, nodes))
    inner = {node for chain in chains for node in chain.nodes[:-1]}
    for node in nodes:
        # What computes sizes is not lowered: XNNPACK knows them in every call.
        if node.op != "call_function" or node in inner or not isinstance(node.meta["val"], torch.Tensor):
            continue
        lower = LOWERINGS.get(operator_name(node))
        if lower is None:
            raise LoweringError("XNNPACK has no lowering for this operator", where=describe_node(node))
        builder.begin(node)
        builder.define(node, lower(builder, node))


def _input_format(node: Node, view: ProgramView) -> Format:
    """The format of an input: integers mean what the program's dequantize says of them."""
    datatype = FLOATS.get(node.meta["val"].dtype)
    if datatype is not None:
        return Format(datatype)
    for user in node.users:
        quantization = quantization_of(user, view)
        format = None if quantization is None else activation_format(quantization)
        if format is not None:
            return format
    raise LoweringError("is an input of integers that nobody dequantizes", where=describe_node(node))
