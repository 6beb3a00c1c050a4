"""What a lowering function is given: the graph under construction and the tensors of the program's calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import torch

from delegatekit_api import Call, LoweringError, Operand, ProgramView, describe_node
from delegatekit_toolkit.sizes import shape_of
from delegatekit_toolkit.support import Row

from ..ir.builder import GraphBuilder
from ..ir.formats import FLOATS, TORCH_FLOATS, dequantized, narrowed, weight_format
from ..ir.graph import DataType, Format
from ..ir.joined import Joined
from ..ir.layout import Tensor
from .precision import computes_in

if TYPE_CHECKING:
    from torch.fx import Node

    from ..options import XnnpackOptions


class ProgramBuilder(GraphBuilder):
    """A `GraphBuilder` that knows the program it lowers."""

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

    def lower(self, call: Call, row: Row[Lower]) -> None:
        """Lower a call by its row: in the type that it computes in, with its debug handle. Raises LoweringError."""
        self.debug_handle = call.debug_handle
        self.datatype = computes_in(call, row, half=self.options.half_precision)
        # Where all arithmetic is in float32, what is moved between is not rounded either.
        everything = self.datatype is DataType.BFLOAT16 or self.options.half_precision == "float32"
        if everything and not self._unrounded.keys().isdisjoint(call.node.all_input_nodes):
            self.datatype = DataType.FLOAT32
        tensor = row.lower(self, call)
        self.define(call.result, tensor, rounds=not row.facts.get("converts", False))

    def tensor(self, operand: Operand) -> Tensor:
        """The tensor of an operand: an input, a result of a call lowered before, or a constant.

        Its elements have the type that the operator at hand computes in, or are quantized. Between two operators that
        compute in float32 nothing is rounded.
        """
        node = operand.node
        if self.datatype is DataType.FLOAT32 and node in self._unrounded:
            return self._unrounded[node]
        key = (node, self.datatype)
        found = self._converted.get(key)
        if found is None:
            found = self._converted[key] = self.converted(self.stored_tensor(operand), self.datatype)
        return found

    def stored_tensor(self, operand: Operand) -> Tensor:
        """The tensor of an operand in the program's type for it; in float32 if XNNPACK does not have that."""
        found = self._tensors.get(operand.node)
        if found is None:
            data = self.weights(operand)
            if data is None:
                raise LoweringError("is used before it is lowered", where=describe_node(operand.node))
            datatype = FLOATS.get(data.dtype, DataType.FLOAT32)
            found = Tensor.dense(self.constant(data.to(TORCH_FLOATS[datatype]), format=Format(datatype)))
            self._tensors[operand.node] = found
        if isinstance(found, Joined):
            found = self._tensors[operand.node] = self.reshape(found.parts, found.shape)
        return found

    def joined(self, operand: Operand) -> Joined:
        """The tensor of an operand with the groups that its axes consist of; a group of one axis each in most cases."""
        found = self._tensors.get(operand.node)
        if isinstance(found, Joined):
            return Joined(self.converted(found.parts, self.datatype), found.counts)
        tensor = self.tensor(operand)
        return Joined(tensor, (1,) * len(tensor.shape))

    def operand(self, item: Operand | float) -> Tensor:
        """The tensor of an operand, or a number as a constant of rank 0."""
        return self.scalar(item) if isinstance(item, int | float) else self.tensor(item)

    def define(self, result: Operand, tensor: Tensor | Joined, *, rounds: bool = True) -> None:
        """Record what a result or an input of the program is. Raises LoweringError if the shape is not the program's.

        With `rounds`, a result that was computed in float32 is only rounded for calls that do not compute in float32;
        a conversion that the program asks for is done.
        """
        shape = shape_of(result)
        if tensor.shape != shape:
            where = describe_node(result.node)
            raise LoweringError(f"was lowered to shape {tensor.shape}, not {shape}", where=where)
        node, datatype = result.node, FLOATS.get(result.dtype)
        if datatype is None:
            self._tensors[node] = tensor
        elif isinstance(tensor, Joined):
            self._tensors[node] = Joined(self.converted(tensor.parts, datatype), tensor.counts)
        else:
            self._tensors[node] = self.converted(tensor, datatype)
            if rounds and tensor.value.datatype is DataType.FLOAT32 is not datatype:
                self._unrounded[node] = tensor

    def weights(self, operand: Operand) -> torch.Tensor | None:
        """The elements of a constant, its own storage; None if the operand is no constant."""
        data = operand.constant
        return None if data is None else data.detach()

    def product_weight(self, operand: Operand) -> Tensor:
        """A matrix to multiply rows by: a constant in the type that it is stored in, or a tensor."""
        data = self.weights(operand)
        if data is None or data.dtype not in FLOATS:
            return self.tensor(operand)
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

    def filter(self, operand: Operand) -> tuple[torch.Tensor, Format]:
        """A constant weight and its format: integers if it is made of some that XNNPACK can take, or numbers."""
        data = self.weights(operand)
        if data is not None:
            data = self._weight_to_store(data)
            return data, Format(FLOATS[data.dtype])
        integers = operand.integers
        quantization = None if integers is None else operand.quantization
        data = None if integers is None or quantization is None else self.weights(integers)
        if quantization is None or data is None:
            raise LoweringError("is no constant", where=describe_node(operand.node))
        format = weight_format(quantization)
        if format is not None:
            return data, format
        return dequantized(data, quantization), Format()


#: Lowers one call of the program: adds what computes it and returns its tensor. Relies on the support table's checks.
Lower: TypeAlias = Callable[[ProgramBuilder, Call], "Tensor | Joined"]
