"""From ATen to XNNPACK: each operator of the support table has a small function here that adds its nodes.

`build_graph` turns a partition into an XNNPACK graph; the functions rely on the support table's checks.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from delegatekit_api import LoweringError, ProgramView, describe_node, operator_name
from delegatekit_api.quantization import dynamic_quantization_of, quantization_of

from ..arguments import shape_of
from ..formats import activation_format
from ..graph import Format, Graph
from ..options import XnnpackOptions
from ..precision import FLOATS
from . import elementwise, functions, linear, quantization, reduction, shape, spatial, steps
from .context import Lowering, ProgramBuilder

__all__ = ["LOWERINGS", "build_graph"]

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
    # What finds parameters in each call is part of one conversion, which its last node becomes.
    chains = filter(None, map(dynamic_quantization_of, view.graph.nodes))
    inner = {node for chain in chains for node in chain.nodes[:-1]}
    for node in view.graph.nodes:
        # What computes sizes is not lowered: XNNPACK knows them in every call.
        if node.op != "call_function" or node in inner or not isinstance(node.meta["val"], torch.Tensor):
            continue
        lower = LOWERINGS.get(operator_name(node))
        if lower is None:
            raise LoweringError("XNNPACK has no lowering for this operator", where=describe_node(node))
        builder.begin(node)
        builder.define(node, lower(builder, node))
    for result in view.outputs:
        if result is None:
            raise LoweringError("a delegate returns tensors only", where="outputs of the partition")
        builder.output(builder.stored_tensor(result))
    return builder.graph


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
