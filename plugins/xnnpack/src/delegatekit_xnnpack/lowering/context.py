"""What a lowering function is given: the graph under construction and the tensors of the program's nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from delegatekit_api import LoweringError, ProgramView, describe_node
from delegatekit_api.quantization import DEQUANTIZE, quantization_of

from ..arguments import shape_of
from ..builder import Builder
from ..formats import dequantized, weight_format
from ..graph import Format
from ..joined import Joined
from ..layout import Tensor

if TYPE_CHECKING:
    from torch.fx import Node


class ProgramBuilder(Builder):
    """A `Builder` that knows the program it lowers."""

    def __init__(self, view: ProgramView) -> None:
        super().__init__()
        self.view = view
        self._tensors: dict[Node, Tensor | Joined] = {}

    def tensor(self, node: Node) -> Tensor:
        """The tensor of a node of the program: an input, an operator lowered before, or a constant."""
        found = self._tensors.get(node)
        if found is None:
            data = self.view.constant(node)
            if data is None:
                raise LoweringError("is used before it is lowered", where=describe_node(node))
            found = self._tensors[node] = Tensor.dense(self.constant(data.detach().to(torch.float32)))
        if isinstance(found, Joined):
            found = self._tensors[node] = self.reshape(found.parts, found.shape)
        return found

    def joined(self, node: Node) -> Joined:
        """The tensor of a node with the groups that its axes consist of; each is a group of one in most cases."""
        found = self._tensors.get(node)
        if isinstance(found, Joined):
            return found
        tensor = self.tensor(node)
        return Joined(tensor, (1,) * len(tensor.shape))

    def operand(self, item: Node | float) -> Tensor:
        """The tensor of a node, or a number as a constant of rank 0."""
        return self.scalar(item) if isinstance(item, int | float) else self.tensor(item)

    def define(self, node: Node, tensor: Tensor | Joined) -> None:
        """Record what a node was lowered to. Raises LoweringError if the shape is not the node's."""
        if tensor.shape != shape_of(node):
            raise LoweringError(f"was lowered to shape {tensor.shape}, not {shape_of(node)}", where=describe_node(node))
        self._tensors[node] = tensor

    def weights(self, node: Any) -> torch.Tensor | None:
        """The constant behind a node, its own storage; None if the node is no constant (or None)."""
        data = self.view.constant(node)
        return None if data is None else data.detach()

    def filter(self, node: Any) -> tuple[torch.Tensor, Format]:
        """A constant weight and its format: integers if the node dequantizes some that XNNPACK can take, or numbers."""
        data = self.weights(node)
        if data is not None:
            return data, Format()
        quantization = quantization_of(node, self.view) if str(node.target) in DEQUANTIZE else None
        data = self.weights(node.args[0]) if quantization is not None else None
        if quantization is None or data is None:
            raise LoweringError("is no constant", where=describe_node(node))
        format = weight_format(quantization)
        if format is not None:
            return data, format
        return dequantized(data, quantization), Format()


#: Lowers one node of the program: adds what computes it and returns its tensor. Relies on the support table's checks.
Lowering = Callable[[ProgramBuilder, "Node"], "Tensor | Joined"]
