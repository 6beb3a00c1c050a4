"""What a lowering function is given: the graph under construction and the program's tensors in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from delegatekit_api import Call, LoweringError, Operand, ProgramView
from delegatekit_api.quantization import DEQUANTIZE, Quantization
from delegatekit_toolkit.building import DebugHandles, Merging, PartitionBuilder
from delegatekit_toolkit.content import content_key
from delegatekit_toolkit.layout import identity, moves_elements
from delegatekit_toolkit.quantized import known_data, numbers_of
from delegatekit_toolkit.support import Row

from ..ir.encodings import CLAMPS, activation_fault, activation_type, border_type, encoded, made_as
from ..ir.graph import Array, Encoding, Graph, Node, Parameter, Tensor, uint32
from ..ir.types import INNER, LARGEST, OUTER, DataType, half
from ..ir.values import Value, reordered

#: What a tensor of the program became, or several where an operator has several results.
Made: TypeAlias = "Value | tuple[Value, ...]"


class ProgramBuilder(PartitionBuilder[Value]):
    """Writes operations of QNN."""

    def __init__(self, program: ProgramView) -> None:
        super().__init__(program)
        self.graph: Final = Graph(program.method)
        self.handles: Final = DebugHandles()
        self._constants: Merging[Tensor] = Merging()
        self._stored: dict[tuple[Tensor, tuple[int, ...]], Tensor] = {}
        self._floats: dict[Tensor, Tensor] = {}
        self._call: Call | None = None
        self._is_fixed = False

    # -- the walk over the program -------------------------------------------------------------------------------------

    def begin(self, call: Call, entry: Row[Any]) -> None:
        """Decide whether the call is computed on integers."""
        super().begin(call, entry)
        self._call = call
        self._is_fixed = has_fixed_form(entry, call) and self._may_be_fixed(call)

    def make_input(self, operand: Operand) -> Value:
        """The delegate's next input; 64 bits are narrowed."""
        datatype, encoding = self._border(operand)
        tensor = Tensor(_shape(operand.shape), datatype, encoding, role="input")
        tensor.name = f"input_{len(self.graph.inputs)}_{operand.name}"
        self.graph.inputs.append(tensor)
        value = Value(tensor, identity(operand.rank))
        if encoding is not None:
            return self.quantized(value, *activation_type(_quantization(operand)))
        return Value(self.cast(tensor, INNER[operand.dtype]), value.order)

    def _border(self, operand: Operand) -> tuple[DataType, Encoding | None]:
        """Type and encoding of an input or output: integers that stand for numbers have the program's encoding."""
        if operand.dtype in OUTER:
            return OUTER[operand.dtype], None
        return border_type(_quantization(operand))

    def make_constant(self, operand: Operand, data: torch.Tensor) -> Value:
        """A constant as floats or integers."""
        return Value(self.constant(_array(data)), identity(operand.rank))

    def make_output(self, value: Value, operand: Operand) -> None:
        """Return a value as the delegate's next output."""
        datatype, encoding = self._border(operand)
        if encoding is None:
            tensor = self.cast(self.dense(self.floats(value)), datatype)
        else:
            tensor = self.dense(self.quantized(value, datatype, encoding))
        if not self._is_last(tensor):
            tensor = self.emit("Reshape", [tensor], tensor.shape, tensor.datatype, tensor.encoding)
        tensor.role = "output"
        tensor.name = f"output_{len(self.graph.outputs)}_{operand.name}"
        self.graph.outputs.append(tensor)

    def _is_last(self, tensor: Tensor) -> bool:
        """Whether a tensor is made after all outputs so far: the runtime takes outputs in the order of operations.

        What makes it becomes the last operation, if nothing reads what that makes.
        """
        nodes = self.graph.nodes
        maker = next((node for node in nodes if tensor in node.outputs), None)
        if maker is None or tensor.role:
            return False
        given = [item for item in maker.outputs if item.role]
        if given:
            return maker is nodes[-1] and maker.outputs.index(tensor) > maker.outputs.index(given[-1])
        if any(item in node.inputs for node in nodes for item in maker.outputs):
            return False
        nodes.remove(maker)
        nodes.append(maker)
        return True

    def define(self, operand: Operand, value: Value) -> None:
        """Say what an input or a result is. Raises LoweringError if the shape is not the program's."""
        if _shape(value.shape) != _shape(operand.shape):
            raise LoweringError(f"was lowered to shape {value.shape}, not {operand.shape}", where=operand.description)
        super().define(operand, value)

    # -- integers or floats --------------------------------------------------------------------------------------------

    @property
    def is_fixed(self) -> bool:
        """Whether the call that is lowered now reads and makes integers that stand for numbers."""
        return self._is_fixed

    def _may_be_fixed(self, call: Call) -> bool:
        """All numbers that it reads are constants or integers, and so are those that it makes."""
        computed = [item for item in call.operands if item.dtype.is_floating_point and not item.is_known]
        if not computed or not all(self.value(item).is_fixed for item in computed):
            return False
        made = [
            item for item in call.results if item.dtype.is_floating_point and (item.index is None or item.index == 0)
        ]
        return all(activation_fault(made_as(item)) is None for item in made)

    def result_type(self, call: Call) -> tuple[DataType, Encoding | None]:
        """Type and encoding of a call's first result."""
        result = call.results[0]
        if self._is_fixed and result.dtype.is_floating_point:
            quantization = made_as(result)
            assert quantization is not None
            return activation_type(quantization)
        return INNER[result.dtype], None

    def number(self, value: Value) -> Value:
        """A value as the call needs its numbers: integers if it computes on them, else floats."""
        return value if self._is_fixed else self.floats(value)

    def floats(self, value: Value) -> Value:
        """A value whose numbers are floats; integers and truth values stay as they are."""
        tensor = value.tensor
        if not tensor.datatype.is_fixed_point:
            return value
        if tensor not in self._floats:
            self._floats[tensor] = self.emit("Dequantize", [tensor], tensor.shape, DataType.FLOAT32)
        return Value(self._floats[tensor], value.order)

    def quantized(self, value: Value, datatype: DataType, encoding: Encoding) -> Value:
        """A value as integers of an encoding."""
        tensor = value.tensor
        if (tensor.datatype, tensor.encoding) == (datatype, encoding):
            return value
        kind = "Convert" if tensor.datatype.is_fixed_point else "Quantize"
        return Value(self.emit(kind, [tensor], tensor.shape, datatype, encoding), value.order)

    # -- operands ------------------------------------------------------------------------------------------------------

    def activation(self, operand: Operand) -> Value:
        """An operand as the call needs its numbers; a constant among integers becomes integers of their type."""
        if operand.is_known and operand.dtype.is_floating_point:
            numbers = self.numbers(operand)
            if not self._is_fixed:
                return Value(self.constant(numbers), identity(operand.rank))
            return Value(self.fixed_constant(numbers), identity(operand.rank))
        return self.number(self.value(operand))

    def numbers(self, operand: Operand) -> Array:
        """The numbers of an operand that is known."""
        data, quantization = known_data(operand)
        return _array(data if quantization is None else numbers_of(data, quantization))

    def fixed_constant(self, numbers: Array) -> Tensor:
        """Constant numbers as integers of the type that the call computes with."""
        integers, encoding = encoded(numbers, self._fixed_type())
        return self.constant(integers, self._fixed_type(), encoding)

    def symmetric_constant(self, numbers: Array) -> Tensor:
        """The same with 0 in the middle where the call computes with 16 bits, as some operations want it."""
        if self._fixed_type() is not DataType.UFIXED16:
            return self.fixed_constant(numbers)
        scale = float(np.abs(numbers).max(initial=0.0)) / 32767 or 1.0
        integers = np.rint(numbers / scale).astype(np.int16)
        return self.constant(integers, DataType.SFIXED16, Encoding((scale,), (0,)))

    def _fixed_type(self) -> DataType:
        """The type of the integers that the call reads."""
        assert self._call is not None
        values = [self.value(item) for item in self._call.operands if not item.is_known]
        return next(item.tensor.datatype for item in values if item.is_fixed)

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
            return self.emit("Reshape", [tensor], shape, tensor.datatype, tensor.encoding)
        return self.emit("Transpose", [tensor], shape, tensor.datatype, tensor.encoding, perm=uint32(*moves))

    def dense(self, value: Value) -> Tensor:
        """The value's tensor as the program has it."""
        return self.stored(value, identity(value.rank))

    def reshaped(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """The same elements in another shape."""
        shape = _shape(shape)
        if shape == tensor.shape:
            return tensor
        if tensor.data is not None:
            return self.constant(tensor.data.reshape(shape), tensor.datatype, tensor.encoding)
        return self.emit("Reshape", [tensor], shape, tensor.datatype, tensor.encoding)

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
        (made,) = self.emit_all(kind, inputs, [Tensor(_shape(shape), datatype, encoding)], **parameters)
        return made

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


def has_fixed_form(entry: Row[Any], call: Call) -> bool:
    """Whether the row computes such a call on integers; its fact `fixed` may be a condition that says why not."""
    found = entry.facts.get("fixed", False)
    return found(call) is None if callable(found) else bool(found)


def build_call(call: Call, table: Mapping[str, Row[Lower]]) -> Graph:
    """The graph of one call alone, whose operands are its inputs: for the library's opinion. Raises LoweringError."""
    builder = ProgramBuilder(call.program)
    maker: list[Call] = []
    for operand in call.operands:
        producer = operand.producer
        if operand.is_known:
            maker += [producer] if producer is not None else []
        elif producer is not None and producer.operator in DEQUANTIZE and activation_fault(made_as(operand)) is None:
            builder.define(producer["input"], _fixed_input(builder, operand))
            maker.append(producer)
        elif call.operator in CLAMPS and activation_fault(made_as(operand)) is None:
            builder.define(operand, _fixed_input(builder, operand))
        else:
            builder.define(operand, builder.make_input(operand))
    builder.lower([*maker, call], table)
    return builder.graph


def _fixed_input(builder: ProgramBuilder, operand: Operand) -> Value:
    quantization = made_as(operand)
    assert quantization is not None
    datatype, encoding = activation_type(quantization)
    tensor = Tensor(_shape(operand.shape), datatype, encoding, role="input", name=f"input_{operand.name}")
    builder.graph.inputs.append(tensor)
    return Value(tensor, identity(operand.rank))


def _quantization(integers: Operand) -> Quantization:
    """What integers stand for: by the quantize that makes them, or the dequantizes that read them."""
    calls = [integers.producer, *integers.users]
    found = next((call.quantization for call in calls if call is not None and call.quantization is not None), None)
    if found is None:
        raise LoweringError("has integers that nothing reads as numbers", where=integers.description)
    return found


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    """QNN's tensors have an axis at least."""
    return tuple(shape) or (1,)


def _array(data: torch.Tensor) -> Array:
    return data.detach().contiguous().numpy()


def _narrowed(data: Array) -> tuple[Array, DataType]:
    """A constant in the type that is computed with."""
    datatype = INNER[torch.from_numpy(np.zeros(0, data.dtype)).dtype]
    if datatype.is_float:
        data = np.clip(data, -LARGEST, LARGEST)
    return data.astype(datatype.numpy), datatype


#: Lowers one call of the program: writes what computes it and returns its value, or several.
Lower: TypeAlias = Callable[[ProgramBuilder, Call], Made]
