"""Builds the XNNPACK graph of lowerings' nodes; merges equal nodes and inserts the necessary transposes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from delegatekit_api import LoweringError
from delegatekit_toolkit.layout import (
    Order,
    identity,
    inverse,
    moves_elements,
    permuted,
    regroupings,
    to_channels_first,
)
from delegatekit_toolkit.sizes import Dynamic, Size, dynamic_count, largest

from . import operators as ops
from .formats import TORCH_FLOATS, numbers
from .graph import Graph, Node, Value
from .layout import Tensor, reshape_through
from .types import (
    HALF_TYPES,
    MAX_RANK,
    Bounds,
    DataType,
    Format,
    PerChannelQuantization,
    PerRowQuantization,
    PerTensorQuantization,
    Shape,
    static,
)


class GraphBuilder:
    """The graph of one delegate under construction."""

    #: The type that the operator being lowered computes in, and its numbers have; set by the caller of the lowering.
    datatype: DataType

    def __init__(self) -> None:
        self.graph = Graph()
        #: Debug handle of the program's operator that is being lowered.
        self.debug_handle: int | None = None
        self._merged: dict[object, Node] = {}
        self._constants: dict[object, Value] = {}

    # -- values --------------------------------------------------------------------------------------------------

    def input(self, shape: Shape, format: Format = Format()) -> Tensor:  # noqa: B008
        """The delegate's next input."""
        value = Value(shape, format.datatype, quantization=format.quantization)
        self.graph.inputs.append(value)
        return Tensor.dense(value)

    def output(self, tensor: Tensor) -> None:
        """Return `tensor` as the delegate's next output."""
        value = self.dense(tensor)
        if value.producer is None or value in self.graph.outputs:
            # The runtime never writes inputs and constants to the caller, nor one value to two outputs.
            value = self._append(ops.Unary(ops.UnaryKind.COPY), (value,), None).output
        self.graph.outputs.append(value)

    def constant(self, data: torch.Tensor, shape: Shape | None = None, format: Format = Format()) -> Value:  # noqa: B008
        """A constant with the elements of `data` in row-major order; `data` is kept, not copied.

        `shape` is the constant's shape if it differs from that of `data`.
        """
        shape = tuple(data.shape) if shape is None else shape
        # The tensors in the table are alive, so that an address identifies one tensor.
        key = (data.data_ptr(), tuple(data.shape), data.stride(), shape, format)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = Value(shape, format.datatype, data, format.quantization)
        return found

    def scalar(self, number: float) -> Tensor:
        """A constant of rank 0."""
        return self.filled((), number)

    def filled(self, shape: Shape, number: float, datatype: DataType | None = None) -> Tensor:
        """A constant with the same number everywhere, by default of the type that the current operator computes in."""
        shape, datatype = static(shape), datatype or self.datatype
        # The text distinguishes 0.0 from -0.0 and finds an equal NaN.
        key = (shape, repr(float(number)), datatype)
        found = self._constants.get(key)
        if found is None:
            data = torch.full(shape, number, dtype=TORCH_FLOATS[datatype])
            found = self._constants[key] = Value(shape, datatype, data)
        return Tensor.dense(found)

    def converted(self, tensor: Tensor, datatype: DataType) -> Tensor:
        """The tensor with elements of another floating-point type; quantized ones stay unchanged."""
        value = tensor.value
        if datatype is value.datatype or value.datatype not in TORCH_FLOATS:
            return tensor
        if value.data is not None:
            format = Format(datatype)
            return Tensor(self.constant(value.data.to(TORCH_FLOATS[datatype]), value.shape, format), tensor.order)
        producer = value.producer
        if producer is not None and isinstance(producer.operator, ops.ConstantPad):
            # Pad after the conversion: a convolution can absorb the padding.
            pad, inner = producer.operator, self.converted(Tensor.dense(producer.inputs[0]), datatype)
            fill = float(torch.tensor(pad.fill, dtype=TORCH_FLOATS[value.datatype]))
            padded = self.emit(ops.ConstantPad(pad.before, pad.after, fill), inner.value)
            return Tensor(padded, tensor.order)
        if DataType.FLOAT32 not in (datatype, value.datatype):
            tensor = self.converted(tensor, DataType.FLOAT32)
        return self.map(ops.Convert(Format(datatype)), tensor)

    # -- nodes on stored values ----------------------------------------------------------------------------------

    def emit(self, operator: ops.Operator, *inputs: Value, clamp: Bounds | None = None) -> Value:
        """The value of an operator; an equal node that already exists is reused."""
        inputs = tuple(self._numbers_for(operator, value) for value in inputs)
        key = (operator, inputs, clamp)
        node = self._merged.get(key)
        if node is None:
            node = self._merged[key] = self._append(operator, inputs, clamp)
        elif self.debug_handle is not None and self.debug_handle not in node.debug_handles:
            node.debug_handles += (self.debug_handle,)
        return node.output

    def _numbers_for(self, operator: ops.Operator, value: Value) -> Value:
        """A constant of integers as numbers, for operators that never compute on constant integers."""
        if value.data is None or value.quantization is None or isinstance(operator, _ON_CONSTANT_INTEGERS):
            return value
        found = self._constants.get(value)
        if found is None:
            data = numbers(value).reshape(static(value.shape))
            found = self._constants[value] = Value(value.shape, data=data)
        return found

    def _append(self, operator: ops.Operator, inputs: tuple[Value, ...], clamp: Bounds | None) -> Node:
        format = operator.output_format(*(value.format for value in inputs))
        output = Value(
            operator.output_shape(*(value.shape for value in inputs)), format.datatype, quantization=format.quantization
        )
        handles = () if self.debug_handle is None else (self.debug_handle,)
        output.producer = Node(operator, inputs, output, clamp, handles)
        self.graph.nodes.append(output.producer)
        return output.producer

    def reshaped(self, value: Value, shape: Shape) -> Value:
        """The value under another shape, of which one size may change; chains of reshapes are merged."""
        if value.data is not None:
            return self._reshaped_constant(value, shape)
        producer = value.producer
        if producer is not None and isinstance(producer.operator, ops.Reshape):
            value = producer.inputs[0]
        elif producer is not None and value.datatype is DataType.QDINT8:
            return self.emit(_rows_reshaped(value, shape), self.reshaped(producer.inputs[0], shape))
        if value.shape == shape:
            return value
        return self.emit(ops.Reshape(tuple(0 if isinstance(size, Dynamic) else size for size in shape)), value)

    def _reshaped_constant(self, value: Value, shape: Shape) -> Value:
        match value.quantization:
            case None | PerTensorQuantization():
                return self.constant(_data(value), shape, value.format)
            case PerChannelQuantization(_, 0) if shape[:1] == value.shape[:1]:
                return self.constant(_data(value), shape, value.format)
        return self.constant(numbers(value), shape)

    def transposed(self, value: Value, permutation: Sequence[int]) -> Value:
        """The value with permuted axes; chains are merged, and moving axes of size 1 is a reshape."""
        permutation = tuple(permutation)
        if value.data is not None:
            return self._transposed_constant(value, permutation)
        producer = value.producer
        if producer is not None and isinstance(producer.operator, ops.Transpose):
            value, inner = producer.inputs[0], producer.operator.permutation
            permutation = tuple(inner[axis] for axis in permutation)
        elif producer is not None and isinstance(producer.operator, ops.ConstantPad):
            # Pad after the transpose: there is less to transpose, and a convolution can absorb the padding.
            pad = producer.operator
            before, after = (tuple(sizes[axis] for axis in permutation) for sizes in (pad.before, pad.after))
            inner_value = self.transposed(producer.inputs[0], permutation)
            return self.emit(ops.ConstantPad(before, after, pad.fill), inner_value)
        elif producer is not None and value.datatype is DataType.QDINT8:
            # XNNPACK does not transpose rows that it has quantized.
            return self.emit(producer.operator, self.transposed(producer.inputs[0], permutation))
        shape = permuted(value.shape, permutation)
        if not moves_elements(value.shape, permutation) and dynamic_count(shape) < 2:
            return self.reshaped(value, shape)
        return value if permutation == tuple(range(len(shape))) else self.emit(ops.Transpose(permutation), value)

    def _transposed_constant(self, value: Value, permutation: tuple[int, ...]) -> Value:
        if value.quantization is None or isinstance(value.quantization, PerTensorQuantization):
            data = _data(value).reshape(static(value.shape)).permute(permutation)
            return self.constant(data, format=value.format)
        return self.constant(numbers(value).reshape(static(value.shape)).permute(permutation))

    # -- tensors in the layout that an operator needs --------------------------------------------------------------

    def stored(self, tensor: Tensor, order: Order) -> Value:
        """The tensor's elements stored in the given order."""
        value = tensor.value
        if tensor.order == order and value.data is None and not _is_merged(value):
            return value
        return self.transposed(tensor.value, [tensor.order[axis] for axis in inverse(order)])

    def dense(self, tensor: Tensor) -> Value:
        """The tensor's elements stored as PyTorch stores them."""
        return self.stored(tensor, identity(len(tensor.order)))

    def nhwc(self, tensor: Tensor) -> Value:
        """The elements of a feature map (N, C, H, W) stored (N, H, W, C)."""
        return self.stored(tensor, to_channels_first(4))

    def from_nhwc(self, value: Value) -> Tensor:
        """The feature map (N, C, H, W) that is stored (N, H, W, C) in `value`."""
        return Tensor(value, to_channels_first(4))

    def reshape(self, tensor: Tensor, shape: Shape) -> Tensor:
        """The tensor under another shape, without a transpose where memory allows."""
        if tensor.shape == shape:
            return tensor
        through = reshape_through(tensor, shape)
        if through is not None and (dynamic_count(shape) < 2 or through.shape == tensor.value.shape):
            return Tensor(self.reshaped(tensor.value, through.shape), through.order)
        if dynamic_count(shape) > 1 and tensor.value.data is None:
            return self._regrouped(tensor, shape)
        return Tensor.dense(self.reshaped(self.dense(tensor), shape))

    def slice(self, tensor: Tensor, axis: int, start: int, size: Size) -> Tensor:
        """`size` elements from `start` along a logical axis: a known number, or all up to a position."""
        stored = tensor.value.shape
        if size == tensor.shape[axis]:
            return tensor
        offsets, sizes = [0] * len(stored), list(map(largest, stored))
        offsets[tensor.order[axis]], sizes[tensor.order[axis]] = start, largest(size)
        return self.map(ops.Slice(tuple(offsets), tuple(sizes)), tensor)

    def concatenated(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors of equal rank joined along a logical axis, in the most common of their storage orders."""
        order = self.common_order(tensors, len(tensors[0].shape))
        operator = ops.Concatenate(order[axis])
        values = [self.stored(tensor, order) for tensor in tensors]
        while len(values) > 1:
            # In groups of five, the groups in groups of five: the copies of an element are the tree's depth.
            groups = [values[at : at + ops.CONCATENATE_LIMIT] for at in range(0, len(values), ops.CONCATENATE_LIMIT)]
            values = [group[0] if len(group) == 1 else self.emit(operator, *group) for group in groups]
        return Tensor(values[0], order)

    def pad(self, tensor: Tensor, amounts: Sequence[tuple[int, int]], fill: float) -> Tensor:
        """`fill` before and after each logical axis."""
        if not any(map(any, amounts)):
            return tensor
        axes = inverse(tensor.order)
        before, after = (tuple(amounts[axis][side] for axis in axes) for side in (0, 1))
        return self.map(ops.ConstantPad(before, after, fill), tensor)

    # -- reshapes with several sizes that change --------------------------------------------------------------------

    def _regrouped(self, tensor: Tensor, target: Shape) -> Tensor:
        """The tensor under a shape with several sizes that change, which XNNPACK's reshape cannot express.

        Axes of fixed sizes are split and joined by slices and concatenations; axes of size 1 are added by broadcasting
        and removed by averaging. See `regrouping_obstacle` for the limits.
        """
        shape = tensor.shape
        obstacle = regrouping_obstacle(shape, target)
        if obstacle is not None:
            raise LoweringError(f"{shape} to {target}: {obstacle}", where="XNNPACK graph")
        units = [axis for axis, size in enumerate(shape) if size == 1]
        free = len(units)
        # Axes of size 1 are kept in front; `at` is the logical axis that comes next.
        tensor = tensor.permuted([*units, *(axis for axis, size in enumerate(shape) if size != 1)])
        at = free
        for old, new in regroupings(shape, target):
            if [shape[axis] for axis in old] == [target[axis] for axis in new]:
                at += len(old)
                continue
            # The second to last is joined to the last; its unit axis goes to the front, and the next takes its place.
            second = at + len(old) - 2
            for _ in old[1:]:
                tensor = _moved(self._joined(tensor, second), second, 0)
                free, at = free + 1, at + 1
            for axis in new[:-1]:
                if not free:
                    tensor, free, at = self.lifted(tensor), 1, at + 1
                tensor = self._cut(_moved(tensor, 0, at - 1), at - 1, largest(target[axis]))
                free -= 1
            at += 1
        wanted = target.count(1)
        for _ in range(wanted - free):
            tensor, free = self.lifted(tensor), free + 1
        surplus = free - wanted
        if surplus > 0 and surplus % 2 and wanted:
            tensor, surplus = self.lifted(self._without_units(tensor, surplus + 1)), 0
        tensor = self._without_units(tensor, surplus)
        sources = iter(range(wanted)), iter(range(wanted, len(target)))
        return tensor.permuted([next(sources[size != 1]) for size in target])

    def _joined(self, tensor: Tensor, axis: int) -> Tensor:
        """The elements of an axis (of a known size) concatenated along the next; the axis then has size 1."""
        return self.concatenated(
            [self.slice(tensor, axis, at, 1) for at in range(largest(tensor.shape[axis]))], axis + 1
        )

    def _cut(self, tensor: Tensor, axis: int, count: int) -> Tensor:
        """The axis after `axis` split into `count` parts, which become `axis` (of size 1 before)."""
        width = largest(tensor.shape[axis + 1]) // count
        return self.concatenated([self.slice(tensor, axis + 1, at * width, width) for at in range(count)], axis)

    def lifted(self, tensor: Tensor) -> Tensor:
        """The tensor with another axis of size 1 in front: a product with a one of higher rank."""
        half = tensor.value.datatype in HALF_TYPES
        datatype = tensor.value.datatype if half else DataType.FLOAT32
        one = self.filled((1,) * (len(tensor.order) + 1), 1.0, datatype).value
        value = self.emit(ops.Binary(ops.BinaryKind.MULTIPLY), tensor.value, one)
        return Tensor(value, (0, *(axis + 1 for axis in tensor.order)))

    def _without_units(self, tensor: Tensor, count: int) -> Tensor:
        """The tensor without its first `count` axes, of size 1: means over one element, which remove axes in pairs."""
        if count % 2:
            tensor, count = self.lifted(tensor), count + 1
        while count:
            rest = sorted(range(2, len(tensor.order)), key=lambda axis: tensor.order[axis])
            value = self.stored(tensor, inverse([*rest[:-1], 0, 1, rest[-1]]))
            order = inverse([axis - 2 for axis in rest])
            tensor, count = Tensor(self.emit(ops.GlobalAveragePool(keep_dims=False), value), order), count - 2
        return tensor

    # -- elementwise -----------------------------------------------------------------------------------------------

    def unary(self, kind: ops.UnaryKind, tensor: Tensor) -> Tensor:
        """An elementwise function, in the operand's storage order."""
        return self.map(ops.Unary(kind), tensor)

    def map(self, operator: ops.Operator, tensor: Tensor, clamp: Bounds | None = None) -> Tensor:
        """An operator with one input, in the input's storage order."""
        return Tensor(self._mapped(operator, tensor.value, clamp=clamp), tensor.order)

    def _mapped(self, operator: ops.Operator, value: Value, *scalars: Value, clamp: Bounds | None = None) -> Value:
        producer = value.producer
        if operator.is_elementwise and producer is not None and isinstance(producer.operator, ops.Reshape):
            # Before the reshape, so that an activation follows the convolution that it can be folded into.
            return self.reshaped(self.emit(operator, producer.inputs[0], *scalars, clamp=clamp), value.shape)
        return self.emit(operator, value, *scalars, clamp=clamp)

    def clamp(self, tensor: Tensor, low: float, high: float) -> Tensor:
        """min(max(tensor, low), high)."""
        return self.map(ops.Clamp(), tensor, Bounds(low, high))

    def binary(self, kind: ops.BinaryKind, left: Tensor, right: Tensor) -> Tensor:
        """A broadcasting elementwise function, in the order that needs the fewest transposes."""
        rank = max(len(left.order), len(right.order))
        order = self.common_order((left, right), rank)
        first, second = (self._operand(tensor, order) for tensor in (left, right))
        if not second.shape:
            return Tensor(self._mapped(ops.Binary(kind), first, second), order)
        return Tensor(self.emit(ops.Binary(kind), first, second), order)

    def common_order(self, tensors: Sequence[Tensor], rank: int) -> Order:
        """The storage order among those of `tensors` for which the fewest elements must be moved."""
        candidates = {tensor.order: None for tensor in tensors if len(tensor.order) == rank and not _is_free(tensor)}
        plain = identity(rank)

        def cost(order: Order) -> tuple[int, bool]:
            moved = sum(
                largest(tensor.value.size) for tensor in tensors if not _is_free(tensor) and _differs(tensor, order)
            )
            # The result of a convolution is mostly read by another one: of two equal orders, avoid the identity.
            return moved, order == plain

        return min(candidates, key=cost, default=plain)

    def _operand(self, tensor: Tensor, order: Order) -> Value:
        rank = len(order)
        if tensor.value.size == 1 and len(tensor.order) <= 1:
            return tensor.value
        if len(tensor.order) < rank and order != identity(rank):
            tensor = self.reshape(tensor, (1,) * (rank - len(tensor.order)) + tensor.shape)
        elif len(tensor.order) < rank:
            return self.dense(tensor)
        return self.stored(tensor, order)


_ON_CONSTANT_INTEGERS = (ops.FullyConnected, ops.Convolution, ops.Binary, ops.Concatenate)
#: Maximum number of parts that an axis may be split into or joined from.
_PART_LIMIT = 64


def regrouping_obstacle(shape: Shape, target: Shape) -> str | None:
    """The reason why a reshape between shapes with several sizes that change is impossible; None if it is possible.

    The axes that change stay the same, or form a group alone on both sides; the others may be split and joined.
    """
    units, rank = shape.count(1), len(shape)
    for old, new in regroupings(shape, target):
        before, after = [shape[axis] for axis in old], [target[axis] for axis in new]
        if before == after:
            continue
        if dynamic_count(before):
            return "sizes that change are joined or split"
        parts = max(map(largest, (*before[:-1], *after[:-1])))
        if parts > _PART_LIMIT:
            return f"{parts} parts of an axis"
        units += len(old) - 1
        missing = max(0, len(new) - 1 - units)
        units, rank = units + missing - (len(new) - 1), rank + missing
    wanted = target.count(1)
    # Axes are removed in pairs: an odd one needs another.
    peak = rank + (max(0, wanted - units) if wanted else units % 2)
    return f"needs {peak} axes, XNNPACK allows {MAX_RANK}" if peak > MAX_RANK else None


def _is_merged(value: Value) -> bool:
    """True if a reshape or a transpose of the value may be merged with the node that computed it."""
    made_by = None if value.producer is None else value.producer.operator
    return value.datatype is DataType.QDINT8 or isinstance(made_by, ops.Reshape | ops.Transpose | ops.ConstantPad)


def _data(value: Value) -> torch.Tensor:
    assert value.data is not None
    return value.data


def _rows_reshaped(value: Value, shape: Shape) -> ops.Convert:
    """The parameters of a quantization in each call after a reshape: the same elements still share a scale."""
    quantization = value.quantization
    assert isinstance(quantization, PerRowQuantization)
    lead = len(value.shape) - quantization.axes
    axes = 1 if quantization.axes == 1 else len(shape) - lead
    return ops.Convert(Format(value.datatype, PerRowQuantization(axes)))


def _moved(tensor: Tensor, source: int, destination: int) -> Tensor:
    """The tensor with one logical axis moved."""
    dims = [axis for axis in range(len(tensor.order)) if axis != source]
    dims.insert(destination, source)
    return tensor.permuted(dims)


def _is_free(tensor: Tensor) -> bool:
    """True for constants, which are transposed before they are written, and single elements, which need none."""
    return tensor.value.data is not None or tensor.value.size == 1


def _differs(tensor: Tensor, order: Order) -> bool:
    """True if storing the tensor (extended by leading axes of size 1) in `order` moves elements."""
    lead = len(order) - len(tensor.order)
    stored = [axis - lead for axis in inverse(order) if axis >= lead]
    return moves_elements(tensor.value.shape, [tensor.order[axis] for axis in stored])
