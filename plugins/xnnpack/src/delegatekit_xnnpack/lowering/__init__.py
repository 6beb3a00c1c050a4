"""From ATen to XNNPACK: each operator of the support table has a small function here that adds its nodes.

`build_graph` turns a partition into an XNNPACK graph; the functions rely on the support table's checks.
"""

from __future__ import annotations

import torch

from delegatekit_api import LoweringError, ProgramView, describe_node, operator_name

from ..arguments import shape_of
from ..graph import Graph
from . import elementwise, linear, reduction, shape, spatial
from .context import Lowering, ProgramBuilder

__all__ = ["LOWERINGS", "build_graph"]

#: Operator name -> the function that lowers it.
LOWERINGS: dict[str, Lowering] = {
    **elementwise.LOWERINGS,
    **linear.LOWERINGS,
    **reduction.LOWERINGS,
    **shape.LOWERINGS,
    **spatial.LOWERINGS,
}


def build_graph(view: ProgramView) -> Graph:
    """Lower a partition's program, node by node.

    Raises LoweringError for an operator that the support table would not have taken.
    """
    builder = ProgramBuilder(view)
    for node in view.inputs:
        builder.define(node, builder.input(shape_of(node)))
    for node in view.graph.nodes:
        # What computes sizes is not lowered: XNNPACK knows them in every call.
        if node.op != "call_function" or not isinstance(node.meta["val"], torch.Tensor):
            continue
        lower = LOWERINGS.get(operator_name(node))
        if lower is None:
            raise LoweringError("XNNPACK has no lowering for this operator", where=describe_node(node))
        builder.debug_handle = node.meta.get("debug_handle")
        builder.define(node, lower(builder, node))
    for result in view.outputs:
        if result is None:
            raise LoweringError("a delegate returns tensors only", where="outputs of the partition")
        builder.output(builder.tensor(result))
    return builder.graph
