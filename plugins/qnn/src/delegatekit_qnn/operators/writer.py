"""Writes operations and constants of a QNN graph: what a program's builder stands on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from delegatekit_toolkit.building import DebugHandles, Merging
from delegatekit_toolkit.content import content_key
from delegatekit_toolkit.layout import identity, moves_elements

from ..ir.encodings import encoded
from ..ir.graph import Array, Encoding, Graph, Node, Parameter, Tensor, uint32
from ..ir.types import INNER, LARGEST, DataType, half
from ..ir.values import Value, reordered


class GraphWriter:
    """A graph under construction; equal constants, and one tensor in the same order of axes, are made once."""

    def __init__(self, name: str) -> None:
        self.graph: Final = Graph(name)
        self.handles: Final = DebugHandles()
        #: The debug handle of the call that operations are written for.
        self.debug_handle: int | None = None
        self._constants: Merging[Tensor] = Merging()
        self._stored: dict[tuple[Tensor, tuple[int, ...]], Tensor] = {}
        self._floats: dict[Tensor, Tensor] = {}
        #: Integers that floats were made.
        self._from_floats: set[Tensor] = set()
        #: What was reshaped, and what it was made of.
        self._reshaped: dict[Tensor, Tensor] = {}
        #: Floats to which different constants were added.
        self._sums: set[Tensor] = set()

    # -- integers or floats --------------------------------------------------------------------------------------------

    def floats(self, value: Value) -> Value:
        """A value whose numbers are floats; integers and booleans stay as they are."""
        tensor = value.tensor
        if not tensor.datatype.is_fixed_point:
            return value
        if tensor not in self._floats:
            read = tensor
            if tensor in self._from_floats:
                # A dequantize right after a quantize the library leaves out with it: nothing would be rounded.
                read = self.emit("ElementWiseMaximum", [tensor, tensor], tensor.shape, tensor.datatype, tensor.encoding)
            self._floats[tensor] = self.emit("Dequantize", [read], tensor.shape, DataType.FLOAT32)
        return Value(self._floats[tensor], value.order)

    def quantized(self, value: Value, datatype: DataType, encoding: Encoding) -> Value:
        """A value as integers of an encoding."""
        tensor = value.tensor
        if (tensor.datatype, tensor.encoding) == (datatype, encoding):
            return value
        kind = "Convert" if tensor.datatype.is_fixed_point else "Quantize"
        made = self.emit(kind, [tensor], tensor.shape, datatype, encoding)
        if kind == "Quantize":
            self._from_floats.add(made)
        return Value(made, value.order)

    # -- constants -----------------------------------------------------------------------------------------------------

    def constant(self, data: Array, datatype: DataType | None = None, encoding: Encoding | None = None) -> Tensor:
        """A constant, made once for equal bytes."""
        if datatype is None:
            data, datatype = _narrowed(data)
        if data.ndim == 0:
            data = data.reshape(1)
        array = np.ascontiguousarray(data)
        key = (datatype, encoding, array.shape, content_key(array.data))
        return self._constants.once(key, lambda: Tensor(array.shape, datatype, encoding, array))

    def scalar(self, number: float, like: Tensor) -> Tensor:
        """A number as a constant beside a tensor."""
        if like.datatype.is_fixed_point:
            integers, encoding = encoded(np.array([number], np.float64), like.datatype)
            return self.constant(integers, like.datatype, encoding)
        number = half(number) if like.datatype.is_float else number
        return self.constant(np.array([number]).astype(like.datatype.numpy), like.datatype)

    # -- order of axes -------------------------------------------------------------------------------------------------

    def stored(self, value: Value, order: Sequence[int]) -> Tensor:
        """The value's tensor with the program's axes in this order in memory."""
        order = tuple(order)
        moves = tuple(value.order.index(axis) for axis in order)
        if moves == identity(len(moves)):
            return value.tensor
        key = (value.tensor, moves)
        if key not in self._stored:
            self._stored[key] = self._transposed(value.tensor, moves)
        return self._stored[key]

    def _transposed(self, tensor: Tensor, moves: tuple[int, ...]) -> Tensor:
        shape = reordered(tensor.shape, moves)
        if tensor.data is not None:
            assert tensor.encoding is None or tensor.encoding.axis is None
            return self.constant(tensor.data.transpose(moves), tensor.datatype, tensor.encoding)
        if not moves_elements(tensor.shape, moves):
            return self.reshaped(tensor, shape)
        return self.emit("Transpose", [tensor], shape, tensor.datatype, tensor.encoding, perm=uint32(*moves))

    def dense(self, value: Value) -> Tensor:
        """The value's tensor as the program has it."""
        return self.stored(value, identity(value.rank))

    def source(self, tensor: Tensor) -> Tensor:
        """The tensor that was reshaped to make this one; itself if none was."""
        return self._reshaped.get(tensor, tensor)

    def reshaped(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """The same elements in another shape; of what was reshaped before, the shape in between is passed over."""
        shape = stored_shape(shape)
        source = self.source(tensor)
        if shape in (tensor.shape, source.shape):
            return tensor if shape == tensor.shape else source
        if tensor.data is not None:
            return self.constant(tensor.data.reshape(shape), tensor.datatype, tensor.encoding)
        taken = source
        if source.role == "input" and source.rank > 4 == len(shape) and 1 in source.shape:
            # Some inputs of five axes, of which some have one element, the library does not make four of at once.
            taken = self.emit("Reshape", [source], [math.prod(shape)], tensor.datatype, tensor.encoding)
        made = self.emit("Reshape", [taken], shape, tensor.datatype, tensor.encoding)
        self._reshaped[made] = source
        return made

    # -- operations ----------------------------------------------------------------------------------------------------

    def emit(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        shape: Sequence[int],
        datatype: DataType,
        encoding: Encoding | None = None,
        **parameters: Parameter,
    ) -> Tensor:
        """An operation with one result."""
        if kind == "ElementWiseMultiply":
            inputs = self._factors(inputs)
        (made,) = self.emit_all(kind, inputs, [Tensor(stored_shape(shape), datatype, encoding)], **parameters)
        if kind == "ElementWiseAdd" and datatype.is_float and any(map(_is_row, inputs)):
            self._sums.add(made)
        return made

    def _factors(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """The factors of a product; one number beside a sum with different constants becomes a row of it.

        The library (2.49) makes (x + [a, b]) * 2 into x * 2 + [a, b].
        """
        found = next((item for item in inputs if item in self._sums), None)
        if found is None:
            return inputs
        longest = max(range(found.rank), key=found.shape.__getitem__)
        row = tuple(size if axis == longest else 1 for axis, size in enumerate(found.shape))
        return [
            item
            if item.data is None or item.data.size > 1
            else self.constant(np.full(row, item.data.ravel()), item.datatype)
            for item in inputs
        ]

    def emit_all(
        self, kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], **parameters: Parameter
    ) -> tuple[Tensor, ...]:
        """An operation with several results."""
        name = f"{kind}_{len(self.graph.nodes)}"
        self.graph.nodes.append(Node(kind, tuple(inputs), tuple(outputs), parameters, name))
        self.handles.add(name, self.debug_handle)
        return tuple(outputs)

    def like(self, kind: str, x: Tensor, **parameters: Parameter) -> Tensor:
        """An operation whose result has the shape, type and encoding of its one input."""
        return self.emit(kind, [x], x.shape, x.datatype, x.encoding, **parameters)

    def cast(self, tensor: Tensor, datatype: DataType) -> Tensor:
        """A tensor in another type; itself if it has it."""
        if tensor.datatype is datatype:
            return tensor
        return self.emit("Cast", [tensor], tensor.shape, datatype)


def _is_row(tensor: Tensor) -> bool:
    """True for a constant of several numbers."""
    return tensor.data is not None and tensor.data.size > 1


def stored_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """QNN's tensors have an axis at least."""
    return tuple(shape) or (1,)


def _narrowed(data: Array) -> tuple[Array, DataType]:
    """A constant in the type that is computed with."""
    datatype = INNER[torch.from_numpy(np.zeros(0, data.dtype)).dtype]
    if datatype.is_float:
        data = np.clip(data, -LARGEST, LARGEST)
    return data.astype(datatype.numpy), datatype
