"""Builds the XNNPACK graph: lowerings ask for nodes on tensors; equal ones merge, transposes appear where they must."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import operators as ops
from .graph import Bounds, Graph, Node, Shape, Value
from .layout import Order, Tensor, channels_last, inverse, moves_elements, reshape_through


class Builder:
    """The graph of one delegate under construction."""

    def __init__(self) -> None:
        self.graph = Graph()
        #: Debug handle of the program's operator that is being lowered.
        self.debug_handle: int | None = None
        self._merged: dict[object, Node] = {}
        self._constants: dict[object, Value] = {}

    # -- values --------------------------------------------------------------------------------------------------

    def input(self, shape: Shape) -> Tensor:
        """The delegate's next input."""
        value = Value(shape)
        self.graph.inputs.append(value)
        return Tensor.dense(value)

    def output(self, tensor: Tensor) -> None:
        """Return `tensor` as the delegate's next output."""
        value = self.dense(tensor)
        if value.producer is None or value in self.graph.outputs:
            # The runtime never writes inputs and constants to the caller, nor one value to two places.
            value = self._append(ops.Unary(ops.UnaryKind.COPY), (value,), None).output
        self.graph.outputs.append(value)

    def constant(self, data: torch.Tensor, shape: Shape | None = None) -> Value:
        """A constant with the elements of `data` in row-major order; `data` is kept, not copied.

        `shape` is the constant's shape if it differs from that of `data`.
        """
        shape = tuple(data.shape) if shape is None else shape
        # The tensors in the table are alive, so that an address means one tensor.
        key = (data.data_ptr(), tuple(data.shape), data.stride(), shape)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = Value(shape, data=data)
        return found

    def scalar(self, number: float) -> Tensor:
        """A constant of rank 0."""
        # The text tells 0.0 from -0.0 and finds a NaN again.
        key = repr(float(number))
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = Value((), data=torch.tensor(number, dtype=torch.float32))
        return Tensor.dense(found)

    def filled(self, shape: Shape, number: float) -> Tensor:
        """A constant with the same number everywhere."""
        key = (shape, repr(float(number)))
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = Value(shape, data=torch.full(shape, number, dtype=torch.float32))
        return Tensor.dense(found)

    # -- nodes on stored values ----------------------------------------------------------------------------------

    def emit(self, operator: ops.Operator, *inputs: Value, clamp: Bounds | None = None) -> Value:
        """The value of an operator; an equal node that exists already is used again."""
        key = (operator, inputs, clamp)
        node = self._merged.get(key)
        if node is None:
            node = self._merged[key] = self._append(operator, inputs, clamp)
        elif self.debug_handle is not None and self.debug_handle not in node.debug_handles:
            node.debug_handles += (self.debug_handle,)
        return node.output

    def _append(self, operator: ops.Operator, inputs: tuple[Value, ...], clamp: Bounds | None) -> Node:
        output = Value(operator.output_shape(*(value.shape for value in inputs)))
        handles = () if self.debug_handle is None else (self.debug_handle,)
        output.producer = Node(operator, inputs, output, clamp, handles)
        self.graph.nodes.append(output.producer)
        return output.producer

    def reshaped(self, value: Value, shape: Shape) -> Value:
        """The value under another shape; a chain of reshapes becomes one."""
        if value.data is not None:
            return self.constant(value.data, shape)
        producer = value.producer
        if producer is not None and isinstance(producer.operator, ops.Reshape):
            value = producer.inputs[0]
        return value if value.shape == shape else self.emit(ops.Reshape(shape), value)

    def transposed(self, value: Value, permutation: Sequence[int]) -> Value:
        """The value with permuted axes; chains become one transpose, and moving axes of size 1 is a reshape."""
        permutation = tuple(permutation)
        if value.data is not None:
            return self.constant(value.data.reshape(value.shape).permute(permutation))
        producer = value.producer
        if producer is not None and isinstance(producer.operator, ops.Transpose):
            value, inner = producer.inputs[0], producer.operator.permutation
            permutation = tuple(inner[axis] for axis in permutation)
        elif producer is not None and isinstance(producer.operator, ops.ConstantPad):
            # Pad behind the transpose: there is less to transpose, and a convolution can take the pad over.
            pad = producer.operator
            before, after = (tuple(sizes[axis] for axis in permutation) for sizes in (pad.before, pad.after))
            inner_value = self.transposed(producer.inputs[0], permutation)
            return self.emit(ops.ConstantPad(before, after, pad.fill), inner_value)
        if not moves_elements(value.shape, permutation):
            return self.reshaped(value, tuple(value.shape[axis] for axis in permutation))
        return self.emit(ops.Transpose(permutation), value)

    # -- tensors in the layout that an operator needs --------------------------------------------------------------

    def stored(self, tensor: Tensor, order: Order) -> Value:
        """The tensor's elements stored in the given order."""
        return self.transposed(tensor.value, [tensor.order[axis] for axis in inverse(order)])

    def dense(self, tensor: Tensor) -> Value:
        """The tensor's elements stored as PyTorch stores them."""
        return self.stored(tensor, tuple(range(len(tensor.order))))

    def nhwc(self, tensor: Tensor) -> Value:
        """The elements of a feature map (N, C, H, W) stored (N, H, W, C)."""
        return self.stored(tensor, channels_last(4))

    def from_nhwc(self, value: Value) -> Tensor:
        """The feature map (N, C, H, W) that is stored (N, H, W, C) in `value`."""
        return Tensor(value, channels_last(4))

    def reshape(self, tensor: Tensor, shape: Shape) -> Tensor:
        """The tensor under another shape, without a transpose where memory allows."""
        if tensor.shape == shape:
            return tensor
        through = reshape_through(tensor, shape)
        if through is None:
            return Tensor.dense(self.reshaped(self.dense(tensor), shape))
        return Tensor(self.reshaped(tensor.value, through.shape), through.order)

    def slice(self, tensor: Tensor, axis: int, start: int, size: int) -> Tensor:
        """`size` elements from `start` along a logical axis."""
        stored = tensor.value.shape
        if size == tensor.shape[axis]:
            return tensor
        offsets, sizes = [0] * len(stored), list(stored)
        offsets[tensor.order[axis]], sizes[tensor.order[axis]] = start, size
        return self.map(ops.Slice(tuple(offsets), tuple(sizes)), tensor)

    def pad(self, tensor: Tensor, amounts: Sequence[tuple[int, int]], fill: float) -> Tensor:
        """`fill` before and after each logical axis."""
        if not any(map(any, amounts)):
            return tensor
        axes = inverse(tensor.order)
        before, after = (tuple(amounts[axis][side] for axis in axes) for side in (0, 1))
        return self.map(ops.ConstantPad(before, after, fill), tensor)

    # -- elementwise -----------------------------------------------------------------------------------------------

    def unary(self, kind: ops.UnaryKind, tensor: Tensor) -> Tensor:
        """An elementwise function, in whatever order the operand is stored."""
        return self.map(ops.Unary(kind), tensor)

    def map(self, operator: ops.Operator, tensor: Tensor, clamp: Bounds | None = None) -> Tensor:
        """An operator with one input, in whatever order that is stored."""
        return Tensor(self._mapped(operator, tensor.value, clamp=clamp), tensor.order)

    def _mapped(self, operator: ops.Operator, value: Value, *scalars: Value, clamp: Bounds | None = None) -> Value:
        producer = value.producer
        if operator.is_elementwise and producer is not None and isinstance(producer.operator, ops.Reshape):
            # Ahead of the reshape, so that an activation meets the convolution that it can be folded into.
            return self.reshaped(self.emit(operator, producer.inputs[0], *scalars, clamp=clamp), value.shape)
        return self.emit(operator, value, *scalars, clamp=clamp)

    def clamp(self, tensor: Tensor, low: float, high: float) -> Tensor:
        """min(max(tensor, low), high)."""
        return self.map(ops.Clamp(), tensor, Bounds(low, high))

    def binary(self, kind: ops.BinaryKind, left: Tensor, right: Tensor, clamp: Bounds | None = None) -> Tensor:
        """A broadcasting elementwise function, in the order that spares most transposes."""
        rank = max(len(left.order), len(right.order))
        order = self.common_order((left, right), rank)
        first, second = (self._operand(tensor, order) for tensor in (left, right))
        if not second.shape:
            return Tensor(self._mapped(ops.Binary(kind), first, second, clamp=clamp), order)
        return Tensor(self.emit(ops.Binary(kind), first, second, clamp=clamp), order)

    def common_order(self, tensors: Sequence[Tensor], rank: int) -> Order:
        """The storage order among those of `tensors` for which the fewest elements must be moved."""
        candidates = {tensor.order: None for tensor in tensors if len(tensor.order) == rank and not _is_free(tensor)}
        identity = tuple(range(rank))
        if len(candidates) < 2:
            return next(iter(candidates), identity)

        def cost(order: Order) -> tuple[int, bool]:
            moved = sum(tensor.value.size for tensor in tensors if not _is_free(tensor) and _differs(tensor, order))
            # What comes out of a convolution mostly goes into one: of two equals, stay away from the identity.
            return moved, order == identity

        return min(candidates, key=cost)

    def _operand(self, tensor: Tensor, order: Order) -> Value:
        rank = len(order)
        if tensor.value.size == 1 and len(tensor.order) <= 1:
            return tensor.value
        if len(tensor.order) < rank and order != tuple(range(rank)):
            tensor = self.reshape(tensor, (1,) * (rank - len(tensor.order)) + tensor.shape)
        elif len(tensor.order) < rank:
            return self.dense(tensor)
        return self.stored(tensor, order)


def _is_free(tensor: Tensor) -> bool:
    """Constants are transposed before they are written, and single elements need not be."""
    return tensor.value.data is not None or tensor.value.size == 1


def _differs(tensor: Tensor, order: Order) -> bool:
    """Whether storing the tensor (extended by leading axes of size 1) in `order` moves elements."""
    lead = len(order) - len(tensor.order)
    stored = [axis - lead for axis in inverse(order) if axis >= lead]
    return moves_elements(tensor.value.shape, [tensor.order[axis] for axis in stored])
