"""What the backend takes. Each constraint returns why it refuses a node, or None."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from delegatekit_api import OperatorSupport, ProgramView, SupportTable

if TYPE_CHECKING:
    from torch.fx import Node


def float32_tensors(node: Node, program: ProgramView) -> str | None:
    """All tensors are float32 and have elements."""
    for operand in (*node.all_input_nodes, node):
        value = operand.meta["val"]
        if value.dtype != torch.float32:
            return f"{operand.name} is {value.dtype}: only float32 is taken"
        if not value.numel():
            return f"{operand.name} has no elements"
    return None


def plain_sum(node: Node, program: ProgramView) -> str | None:
    """alpha is 1."""
    alpha = node.kwargs.get("alpha", 1)
    return None if alpha == 1 else f"alpha = {alpha}: only 1 is taken"


TABLE = SupportTable(
    [
        OperatorSupport("aten.add.Tensor", (plain_sum,)),
        OperatorSupport("aten.mul.Tensor"),
    ],
    common=(float32_tensors,),
)
