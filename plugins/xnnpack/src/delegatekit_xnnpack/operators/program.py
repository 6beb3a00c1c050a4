"""The argument of lowering functions: the graph under construction and the tensors of the program's calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch

from delegatekit_api import Call, LoweringError, Operand, ProgramView
from delegatekit_api.schemes import DYNAMIC, QUANTIZE
from delegatekit_toolkit.building import PartitionBuilder
from delegatekit_toolkit.content import storage_key
from delegatekit_toolkit.layout import identity, inverse, to_channels_first
from delegatekit_toolkit.quantized import numbers_of
from delegatekit_toolkit.support import Row
from delegatekit_toolkit.symbols import shape_of

from ..ir.builder import GraphBuilder
from ..ir.formats import FLOATS, TORCH_FLOATS, activation_format, narrowed, weight_format
from ..ir.joined import Joined
from ..ir.layout import Tensor
from ..ir.types import DataType, Format
from .precision import computes_in

if TYPE_CHECKING:
    from torch.fx import Node

    from ..ir.graph import Graph
    from ..options import XnnpackOptions


class ProgramBuilder(PartitionBuilder["Tensor | Joined"], GraphBuilder):
    """A `GraphBuilder` with access to the program that it lowers."""

    def __init__(self, program: ProgramView, options: XnnpackOptions) -> None:
        PartitionBuilder.__init__(self, program)
        GraphBuilder.__init__(self)
        self.options = options
        #: Tensors in a type that an operator computes in; `value` has them as stored.
        self._converted: dict[tuple[Node, DataType], Tensor] = {}
        #: Values before they were rounded to half precision: the next operator in float32 reads those.
        self._unrounded: dict[Node, Tensor] = {}
        self._narrowed: dict[Hashable, torch.Tensor] = {}
        #: True if the current call is only a conversion.
        self._converts = False

    # -- the walk over the program -----------------------------------------------------------------------------------

    def make_input(self, operand: Operand) -> Tensor:
        """The delegate's next input."""
        return self.input(shape_of(operand), input_format(operand))

    def make_constant(self, operand: Operand, data: torch.Tensor) -> Tensor:
        """A constant in the program's type for it; in float32 if XNNPACK lacks that type."""
        datatype = FLOATS.get(data.dtype, DataType.FLOAT32)
        return Tensor.dense(self.constant(data.to(TORCH_FLOATS[datatype]), format=Format(datatype)))

    def make_output(self, value: Tensor | Joined, operand: Operand) -> None:
        """Return a tensor as the delegate's next output."""
        self.output(self.stored_tensor(operand))

    def begin(self, call: Call, entry: Row[Lower]) -> None:
        """Set the type in which the next call computes, and its debug handle."""
        super().begin(call, entry)
        self.datatype = computes_in(call, entry, half=self.options.half_precision)
        self._converts = bool(entry.facts.get("converts"))
        # If all arithmetic is in float32, values that are moved in between are not rounded either.
        everything = self.datatype is DataType.BFLOAT16 or self.options.half_precision == "float32"
        if everything and not self._unrounded.keys().isdisjoint(call.node.all_input_nodes):
            self.datatype = DataType.FLOAT32

    def define(self, operand: Operand, value: Tensor | Joined) -> None:
        """Set the value of an input or a result. Raises LoweringError if the shape differs from the program's.

        It is stored in the program's type. If it was computed in float32, the next call that computes in float32 gets
        it unrounded, unless the program contains the conversion.
        """
        shape = shape_of(operand)
        if value.shape != shape:
            raise LoweringError(f"was lowered to shape {value.shape}, not {shape}", where=operand.description)
        stored: Tensor | Joined
        if isinstance(value, Joined):
            stored = Joined(self.converted(value.parts, FLOATS[operand.dtype]), value.counts)
        else:
            # Integers stay unchanged.
            datatype = FLOATS.get(operand.dtype, value.value.datatype)
            stored = self.converted(value, datatype)
            if value.value.datatype is DataType.FLOAT32 is not datatype and not self._converts:
                self._unrounded[operand.node] = value
        super().define(operand, stored)

    # -- what lowering functions use ---------------------------------------------------------------------------------

    def tensor(self, operand: Operand) -> Tensor:
        """The tensor of an operand: an input, a result of a call lowered before, or a constant.

        Its elements have the type that the current operator computes in, or are quantized. Between two operators that
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
        """The tensor of an operand in the program's type for it; in float32 if XNNPACK lacks that type."""
        found = self.value(operand)
        if isinstance(found, Joined):
            found = self.reshape(found.parts, found.shape)
            super().define(operand, found)
        return found

    def joined(self, operand: Operand) -> Joined:
        """The tensor of an operand with the groups that its axes consist of; a group of one axis each in most cases."""
        found = self.value(operand)
        if isinstance(found, Joined):
            return Joined(self.converted(found.parts, self.datatype), found.counts)
        tensor = self.tensor(operand)
        return Joined(tensor, (1,) * len(tensor.shape))

    def operand(self, item: Operand | float) -> Tensor:
        """The tensor of an operand, or a number as a constant of rank 0."""
        return self.scalar(item) if isinstance(item, int | float) else self.tensor(item)

    def product_weight(self, operand: Operand) -> Tensor:
        """A matrix to multiply rows by: a constant in the type that it is stored in, or a tensor."""
        data = operand.constant
        if data is None or data.dtype not in FLOATS:
            return self.tensor(operand)
        data = self._weight_to_store(data)
        return Tensor.dense(self.constant(data, format=Format(FLOATS[data.dtype])))

    def _weight_to_store(self, data: torch.Tensor) -> torch.Tensor:
        """A constant weight of products, as float16 if XNNPACK multiplies float32 with that."""
        wanted = TORCH_FLOATS[self.datatype]
        if data.dtype is wanted is not torch.float32 or (data.dtype, wanted) == (torch.float16, torch.float32):
            return data
        if self.options.weights == "float16" and wanted is torch.float32:
            # The program keeps its constants alive, so that an address identifies one tensor.
            key = storage_key(data)
            if key not in self._narrowed:
                self._narrowed[key] = narrowed(data.float())
            return self._narrowed[key]
        return data.to(wanted)

    def filter(self, operand: Operand) -> tuple[torch.Tensor, Format]:
        """A constant weight and its format: integers if it is made of some that XNNPACK supports, or numbers."""
        data = operand.constant
        if data is not None:
            data = self._weight_to_store(data)
            return data, Format(FLOATS[data.dtype])
        if not operand.is_known:
            raise LoweringError("is not a constant", where=operand.description)
        integers, quantization = operand.integers, operand.quantization
        assert integers is not None and quantization is not None
        data = integers.constant
        assert data is not None
        format = weight_format(quantization)
        if format is not None:
            return data, format
        return numbers_of(data, quantization), Format()


#: Lowers one call of the program: adds its nodes and returns its tensor. Relies on the support table's checks.
Lower: TypeAlias = Callable[[ProgramBuilder, Call], "Tensor | Joined"]


def build_layer(layer: Sequence[Call], table: Mapping[str, Row[Lower]], options: XnnpackOptions) -> Graph:
    """Lower some calls of a program, in graph order, that begin with dequantizes and end with quantizes.

    Images are stored as the preceding layers would leave them, with the channels last. Raises LoweringError for an
    operator that the table lacks.
    """
    builder = ProgramBuilder(layer[0].program, options)
    inside = {call.node for call in layer}
    for operand in dict.fromkeys(item for call in layer for item in call.operands if item.node not in inside):
        if not operand.is_constant:
            shape = shape_of(operand)
            order = to_channels_first(4) if len(shape) == 4 else identity(len(shape))
            stored = tuple(shape[axis] for axis in inverse(order))
            builder.define(operand, Tensor(builder.input(stored, input_format(operand)).value, order))
    builder.lower(layer, table, skip=is_inside_chain)
    for call in layer:
        if call.operator in QUANTIZE:
            builder.output(builder.stored_tensor(call.result))
    return builder.graph


def is_inside_chain(call: Call) -> bool:
    """True if a call is part of the conversion that the last call of its chain, the dequantize, is lowered to."""
    return call.operator in DYNAMIC


def input_format(operand: Operand) -> Format:
    """The format of an input: the program's dequantize defines the meaning of integers."""
    datatype = FLOATS.get(operand.dtype)
    if datatype is not None:
        return Format(datatype)
    for user in operand.users:
        quantization = user.quantization
        format = None if quantization is None else activation_format(quantization)
        if format is not None:
            return format
    raise LoweringError("is an input of integers that no call dequantizes", where=operand.description)
