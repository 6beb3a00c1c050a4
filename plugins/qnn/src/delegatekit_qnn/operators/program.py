"""The argument of lowering functions: the graph under construction and the program's tensors in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch

from delegatekit_api import Call, LoweringError, Operand, ProgramView
from delegatekit_api.schemes import Quantization
from delegatekit_toolkit.building import PartitionBuilder
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.quantized import known_data, numbers_of
from delegatekit_toolkit.support import Row

from ..ir.encodings import activation_fault, activation_type, border_type, encoded, made_as
from ..ir.graph import Array, Encoding, Tensor
from ..ir.types import INNER, OUTER, DataType
from ..ir.values import Value
from .writer import GraphWriter, stored_shape

#: What a tensor of the program became, or several where an operator has several results.
Made: TypeAlias = "Value | tuple[Value, ...]"


class ProgramBuilder(PartitionBuilder[Value], GraphWriter):
    """Writes operations of QNN."""

    def __init__(self, program: ProgramView) -> None:
        GraphWriter.__init__(self, program.method)
        PartitionBuilder.__init__(self, program)
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
        tensor = Tensor(stored_shape(operand.shape), datatype, encoding, role="input")
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
        """True if a tensor is made after all outputs so far: the runtime takes outputs in the order of operations.

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
        if stored_shape(value.shape) != stored_shape(operand.shape):
            raise LoweringError(f"was lowered to shape {value.shape}, not {operand.shape}", where=operand.description)
        super().define(operand, value)

    # -- integers or floats --------------------------------------------------------------------------------------------

    @property
    def is_fixed(self) -> bool:
        """True if the current call reads and makes quantized integers."""
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


def has_fixed_form(entry: Row[Any], call: Call) -> bool:
    """True if the row computes such a call on integers; its fact `fixed` may be a condition with a reason."""
    found = entry.facts.get("fixed", False)
    return found(call) is None if callable(found) else bool(found)


def _quantization(integers: Operand) -> Quantization:
    """The encoding of integers, from the quantize that makes them or the dequantizes that read them."""
    calls = [integers.producer, *integers.users]
    found = next((call.quantization for call in calls if call is not None and call.quantization is not None), None)
    if found is None:
        raise LoweringError("has integers that nothing reads as numbers", where=integers.description)
    return found


def _array(data: torch.Tensor) -> Array:
    return data.detach().contiguous().numpy()


#: Lowers one call of the program: writes what computes it and returns its value, or several.
Lower: TypeAlias = Callable[[ProgramBuilder, Call], Made]
