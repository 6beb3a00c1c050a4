"""What a lowering function is given: the graph under construction and the tensors of the program's nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from delegatekit_api import LoweringError, ProgramView, describe_node
from delegatekit_api.quantization import DEQUANTIZE, quantization_of

from ..arguments import shape_of
from ..builder import Builder
from ..formats import dequantized, narrowed, weight_format
from ..graph import DataType, Format
from ..joined import Joined
from ..layout import Tensor
from ..precision import FLOATS, TORCH_FLOATS, computes_in

if TYPE_CHECKING:
    from torch.fx import Node

    from ..options import XnnpackOptions


class ProgramBuilder(Builder):
    """A `Builder` that knows the program it lowers."""

    def __init__(self, view: ProgramView, options: XnnpackOptions) -> None:
        super().__init__()
        self.view = view
        self.options = options
        #: As they are stored: operators get them in the type that they compute in.
        self._tensors: dict[Node, Tensor | Joined] = {}
        self._converted: dict[tuple[Node, DataType], Tensor] = {}
        #: What was rounded to half precision, as it was before: the next operator in float32 reads that.
        self._unrounded: dict[Node, Tensor] = {}
        self._narrowed: dict[object, torch.Tensor] = {}

    def begin(self, node: Node) -> None:
        """Tell that the node is lowered next: by its debug handle, and in the type that it computes in."""
        self.debug_handle = node.meta.get("debug_handle")
        self.datatype = computes_in(node, self.view, half=self.options.half_precision)
        # Where all arithmetic is in float32, what is moved between is not rounded either.
        everything = self.datatype is DataType.BFLOAT16 or self.options.half_precision == "float32"
        if everything and not self._unrounded.keys().isdisjoint(node.all_input_nodes):
            self.datatype = DataType.FLOAT32

    def tensor(self, node: Node) -> Tensor:
        """The tensor of a node of the program: an input, an operator lowered before, or a constant.

        Its elements have the type that the operator at hand computes in, or are quantized. Between two operators that
        compute in float32 nothing is rounded.
        """
        if self.datatype is DataType.FLOAT32 and node in self._unrounded:
            return self._unrounded[node]
        key = (node, self.datatype)
        found = self._converted.get(key)
        if found is None:
            found = self._converted[key] = self.converted(self.stored_tensor(node), self.datatype)
        return found

    def stored_tensor(self, node: Node) -> Tensor:
        """The tensor of a node in the type that the program has for it; in float32 if XNNPACK does not have that."""
        found = self._tensors.get(node)
        if found is None:
            data = self.view.constant(node)
            if data is None:
                raise LoweringError("is used before it is lowered", where=describe_node(node))
            data = data.detach()
            datatype = FLOATS.get(data.dtype, DataType.FLOAT32)
            found = Tensor.dense(self.constant(data.to(TORCH_FLOATS[datatype]), format=Format(datatype)))
            self._tensors[node] = found
        if isinstance(found, Joined):
            found = self._tensors[node] = self.reshape(found.parts, found.shape)
        return found

    def joined(self, node: Node) -> Joined:
        """The tensor of a node with the groups that its axes consist of; each is a group of one in most cases."""
        found = self._tensors.get(node)
        if isinstance(found, Joined):
            return Joined(self.converted(found.parts, self.datatype), found.counts)
        tensor = self.tensor(node)
        return Joined(tensor, (1,) * len(tensor.shape))

    def operand(self, item: Node | float) -> Tensor:
        """The tensor of a node, or a number as a constant of rank 0."""
        return self.scalar(item) if isinstance(item, int | float) else self.tensor(item)

    def define(self, node: Node, tensor: Tensor | Joined) -> None:
        """Record what a node was lowered to. Raises LoweringError if the shape is not the node's."""
        if tensor.shape != shape_of(node):
            raise LoweringError(f"was lowered to shape {tensor.shape}, not {shape_of(node)}", where=describe_node(node))
        datatype = FLOATS.get(node.meta["val"].dtype)
        if datatype is None:
            self._tensors[node] = tensor
        elif isinstance(tensor, Joined):
            self._tensors[node] = Joined(self.converted(tensor.parts, datatype), tensor.counts)
        else:
            self._tensors[node] = self.converted(tensor, datatype)
            # A conversion that the program asks for is done.
            if tensor.value.datatype is DataType.FLOAT32 is not datatype and str(node.target) != _CONVERSION:
                self._unrounded[node] = tensor

    def weights(self, node: Any) -> torch.Tensor | None:
        """The constant behind a node, its own storage; None if the node is no constant (or None)."""
        data = self.view.constant(node)
        return None if data is None else data.detach()

    def product_weight(self, node: Node) -> Tensor:
        """A matrix to multiply rows by: a constant in the type that it is stored in, or a tensor."""
        data = self.weights(node)
        if data is None or data.dtype not in FLOATS:
            return self.tensor(node)
        data = self._weight_to_store(data)
        return Tensor.dense(self.constant(data, format=Format(FLOATS[data.dtype])))

    def _weight_to_store(self, data: torch.Tensor) -> torch.Tensor:
        """A constant weight of products, as float16 where XNNPACK multiplies float32 with that."""
        wanted = TORCH_FLOATS[self.datatype]
        if data.dtype is wanted is not torch.float32 or (data.dtype, wanted) == (torch.float16, torch.float32):
            return data
        if self.options.weights == "float16" and wanted is torch.float32:
            # The program keeps its constants alive, so that an address means one tensor.
            key = (data.data_ptr(), tuple(data.shape), data.stride())
            if key not in self._narrowed:
                self._narrowed[key] = narrowed(data.float())
            return self._narrowed[key]
        return data.to(wanted)

    def filter(self, node: Any) -> tuple[torch.Tensor, Format]:
        """A constant weight and its format: integers if the node dequantizes some that XNNPACK can take, or numbers."""
        data = self.weights(node)
        if data is not None:
            data = self._weight_to_store(data)
            return data, Format(FLOATS[data.dtype])
        quantization = quantization_of(node, self.view) if str(node.target) in DEQUANTIZE else None
        data = self.weights(node.args[0]) if quantization is not None else None
        if quantization is None or data is None:
            raise LoweringError("is no constant", where=describe_node(node))
        format = weight_format(quantization)
        if format is not None:
            return data, format
        return dequantized(data, quantization), Format()


_CONVERSION = "aten._to_copy.default"

#: Lowers one node of the program: adds what computes it and returns its tensor. Relies on the support table's checks.
Lowering = Callable[[ProgramBuilder, "Node"], "Tensor | Joined"]
