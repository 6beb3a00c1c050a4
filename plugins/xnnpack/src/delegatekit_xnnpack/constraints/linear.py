"""Constraints of matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegatekit_api import ProgramView

from ..arguments import argument, rank_of, shape_of, tensor_operands
from ..joined import reshape_obstacle

if TYPE_CHECKING:
    from torch.fx import Node


def matrix_weight(node: Node, program: ProgramView) -> str | None:
    """The weight is a matrix (and the bias a vector)."""
    weight, bias = argument(node, "weight"), argument(node, "bias")
    if rank_of(weight) != 2:
        return f"a weight of rank {rank_of(weight)}"
    return None if bias is None or rank_of(bias) == 1 else f"a bias of rank {rank_of(bias)}"


def unscaled(node: Node, program: ProgramView) -> str | None:
    """alpha and beta are 1."""
    alpha, beta = argument(node, "alpha"), argument(node, "beta")
    return None if alpha == beta == 1 else f"alpha = {alpha} and beta = {beta}: only 1 is taken"


def matrix_operands(node: Node, program: ProgramView) -> str | None:
    """Where several sizes change, both operands are matrices or stacks of these."""
    shape, ranks = shape_of(node), {rank_of(operand) for operand in tensor_operands(node)}
    return reshape_obstacle((*shape, 1), shape) if 1 in ranks else None
