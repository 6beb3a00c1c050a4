"""The argument of lowering functions: the TOSA graph under construction, with floating-point numbers and integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from delegatekit_api import Call, LoweringError, Operand, ProgramView
from delegatekit_api.schemes import DEQUANTIZE
from delegatekit_toolkit.building import place_of
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row
from delegatekit_toolkit.tosa import (
    Add,
    BitwiseOr,
    Cast,
    Ceil,
    Equal,
    Floor,
    Gather,
    Greater,
    LogicalNot,
    LogicalOr,
    Maximum,
    Mul,
    Operator,
    Select,
    Sub,
    Tensor,
    Tile,
)
from delegatekit_toolkit.tosa import DType as Type
from delegatekit_toolkit.tosa.lowering.device import COMPLETE
from delegatekit_toolkit.tosa.lowering.program import ProgramBuilder
from delegatekit_toolkit.tosa.lowering.support import lower_unit
from delegatekit_toolkit.tosa.lowering.values import Value
from delegatekit_toolkit.tosa.types import Array
from delegatekit_toolkit.units import Units

from .limits import LIST
from .types import DTYPES, FLOATS

__all__ = ["Lower", "Made", "Term", "Value", "VgfBuilder"]

#: A value, or a number that becomes a constant of the other operand's type.
Term: TypeAlias = "Value | float"


class VgfBuilder(ProgramBuilder):
    """The toolkit's builder of quantized TOSA, with the operators of all other types."""

    def __init__(self, program: ProgramView) -> None:
        super().__init__(program, COMPLETE, None)

    def build(self, table: Mapping[str, Row[Any]], units: Units) -> None:
        """Lower the program: units on integers, all other calls by their rows.

        Raises LoweringError for an operator that the support table refuses.
        """
        for node in self.program.inputs:
            operand = self.program.operand(node)
            tensor = self.graph.input(operand.name, operand.shape, DTYPES[operand.dtype])
            self.define(operand, Value.dense(tensor))
        ends = {end.node: unit for unit in units.units for end in unit.results or (unit.anchor,)}
        inside = {call.node for unit in units.units for call in unit.inner}
        for call in self.program.calls():
            unit = ends.get(call.node)
            if unit is not None:
                self.begin(unit, call)
                self.define(call.result, lower_unit(self, unit, call))
            elif call.node not in inside and not self._is_folded(call, units):
                self._lower(call, table)
        for item in self.program.outputs:
            if item is None:
                raise LoweringError("returns something that is not computed", where="outputs of the partition")
            self._output(self.program.operand(item))

    def _is_folded(self, call: Call, units: Units) -> bool:
        """True for a dequantize that only units read: they compute with its integers."""
        if call.operator not in DEQUANTIZE:
            return False
        readers = [user for user in call.node.users if user.op != "output"]
        return len(readers) == len(call.node.users) and all(map(units.of, readers))

    def _lower(self, call: Call, table: Mapping[str, Row[Any]]) -> None:
        entry = table.get(call.operator)
        if entry is None:
            raise LoweringError("the backend has no lowering for this operator", where=call.description)
        self._name(call.node.name, (call.node,))
        made = entry.lower(self, call)
        values = made if isinstance(made, tuple) else (made,)
        for result, value in zip(call.results, values, strict=True):
            if value is not None:
                self.define(result, value)

    def _output(self, operand: Operand) -> None:
        """Outputs are tensors of their own, each the result of an operation."""
        self.begin_output(operand)
        tensor = self.contiguous(self.value(operand))
        taken = self.producer(tensor) is None or tensor in self.graph.outputs
        self.graph.output(self.copied(tensor) if taken else tensor)

    def copied(self, part: Tensor) -> Tensor:
        """A copy of a tensor, made by an operation that changes nothing and that the converter keeps."""
        kind = Maximum if part.dtype in FLOATS else LogicalOr if part.dtype == Type.BOOL else BitwiseOr
        return self.emit(kind(), (part, part), part.shape, part.dtype, "copy")

    def keep_inputs_and_outputs(self) -> None:
        """Keep those that the converter drops or joins, for it sees what they do not change.

        Every output becomes a copy, and the first one a choice between two copies for each input.
        """
        outputs = [self.copied(tensor) for tensor in self.graph.outputs]
        for tensor in self.graph.inputs:
            first = outputs[0]
            one = self.reshaped(
                self.sliced(tensor, [0] * len(tensor.shape), [1] * len(tensor.shape)), (1,) * len(first.shape)
            )
            truth = self.cast(Value.dense(one), Type.BOOL).tensor
            outputs[0] = self.emit(Select(), (truth, first, self.copied(first)), first.shape, first.dtype, "choice")
        self.graph.outputs[:] = outputs

    def define(self, operand: Operand, value: Value) -> None:
        """Record the value of a tensor. Raises LoweringError if type or shape are not the tensor's."""
        wanted, made = DTYPES[operand.dtype], value.tensor.dtype
        if made != wanted:
            raise LoweringError(f"was lowered to {made.name}, not {wanted.name}", where=operand.description)
        super().define(operand, value)

    def value(self, operand: Operand) -> Value:
        """The value of an input, a constant or a result."""
        operand = place_of(operand)
        known = self.found(operand)
        if known is None:
            data = operand.constant
            if data is None:
                raise LoweringError("is used before it is lowered", where=operand.description)
            known = self._values[operand] = self.constant(data, operand.name)
        return known

    def constant(self, data: torch.Tensor, name: str = "") -> Value:
        """A constant in the program's layout; int64 becomes int32."""
        return Value.dense(self.graph.constant(data.detach().numpy(), DTYPES[data.dtype], name))

    def array(self, data: Array, dtype: Type, name: str = "") -> Value:
        """A constant of a type of TOSA."""
        return Value.dense(self.graph.constant(data, dtype, name))

    def term(self, item: Term, like: Value) -> Value:
        """A value, or a number as a constant of another value's type, with one element on each axis."""
        if isinstance(item, Value):
            return item
        rank = len(like.order)
        return self.array(np.full((1,) * rank, item), like.tensor.dtype)

    # -- elementwise -------------------------------------------------------------------------------------------------

    def aligned(self, items: Sequence[Value]) -> tuple[list[Tensor], tuple[int, ...]]:
        """Tensors of one rank, stored in one order: that of the one with most elements to move."""
        rank = max(len(item.order) for item in items)
        ranked = [self.ranked(item, rank) for item in items]
        leader = max(ranked, key=lambda item: (item.tensor.data is None, item.tensor.size))
        return [self.stored(item, leader.order) for item in ranked], leader.order

    def ranked(self, value: Value, rank: int) -> Value:
        """The value with further axes of size 1 before its own."""
        missing = rank - len(value.order)
        if not missing:
            return value
        tensor = self.reshaped(value.tensor, (*[1] * missing, *value.tensor.shape))
        return Value(tensor, (*range(missing), *(axis + missing for axis in value.order)))

    def apply(self, operator: Operator, *items: Value, dtype: Type | None = None, more: Sequence[Tensor] = ()) -> Value:
        """An elementwise operation on values, which broadcast."""
        tensors, order = self.aligned(items)
        shape = [max(sizes) if 0 not in sizes else 0 for sizes in zip(*(item.shape for item in tensors), strict=True)]
        return Value(self.emit(operator, (*tensors, *more), shape, dtype or tensors[-1].dtype), order)

    def product(self, left: Value, right: Value) -> Value:
        """The product of two values. One by zero is a difference: the converter makes all of it zero, infinity too."""
        for known, other in ((left, right), (right, left)):
            data = known.tensor.data
            if data is not None and data.size and not data.any() and other.tensor.dtype in FLOATS:
                return self.apply(Add(), self.apply(Sub(), other, other), known)
        return self.apply(Mul(), left, right, more=(self.number(0),))

    def choice(self, condition: Value, left: Value, right: Value) -> Value:
        """One of two."""
        return self.apply(Select(), condition, left, right)

    def opposite(self, truth: Value) -> Value:
        """Not."""
        return self.apply(LogicalNot(), truth)

    def cast(self, value: Value, dtype: Type) -> Value:
        """A value in another type, as PyTorch converts: towards zero, and to True what is not 0."""
        source = value.tensor.dtype
        if source == dtype:
            return value
        if dtype == Type.BOOL:
            if source in (Type.INT8, Type.INT16):
                value = self.apply(Cast(), value, dtype=Type.INT32)
            return self.opposite(self.apply(Equal(), value, self.term(0, value), dtype=Type.BOOL))
        if source == Type.BOOL:
            one, zero = (self.array(np.full((1,) * len(value.order), item), dtype) for item in (1, 0))
            return self.choice(value, one, zero)
        if source in FLOATS and dtype not in FLOATS:
            # CAST rounds to the nearest.
            down, up = self.apply(Floor(), value), self.apply(Ceil(), value)
            value = self.choice(self.less(value, self.term(0, value)), up, down)
        return self.apply(Cast(), value, dtype=dtype)

    def less(self, left: Value, right: Value) -> Value:
        """True where the first is less than the second."""
        return self.apply(Greater(), right, left, dtype=Type.BOOL)

    # -- moves -------------------------------------------------------------------------------------------------------

    def cut(self, value: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
        """The part of a value between two places along an axis."""
        if step != 1:
            return self.looked_up(value, axis, np.arange(start, end, step))
        place, shape = value.stored_axis(axis), list(value.tensor.shape)
        begin = [start if at == place else 0 for at in range(len(shape))]
        shape[place] = end - start
        data = value.tensor.data
        if data is not None:
            part = data[tuple(slice(start, end) if at == place else slice(None) for at in range(len(shape)))]
            return Value(self.graph.constant(part, value.tensor.dtype, value.tensor.name), value.order)
        return Value(self.sliced(value.tensor, begin, shape), value.order)

    def chain(self, values: Sequence[Value], axis: int) -> Value:
        """Values one after the other along an axis."""
        leader = max(values, key=lambda item: item.tensor.size)
        if len(values) == 1:
            return leader
        tensors = [self.stored(item, leader.order) for item in values]
        place = leader.stored_axis(axis)
        return Value(self.joined(tensors, place, ""), leader.order)

    def joined(self, parts: Sequence[Tensor], axis: int, name: str) -> Tensor:
        """Tensors concatenated along an axis, no more at once than TOSA's level 8K has."""
        join = super().joined
        while len(parts) > LIST:
            parts = [join(parts[start : start + LIST], axis, name) for start in range(0, len(parts), LIST)]
        return join(parts, axis, name)

    def expanded(self, value: Value, shape: Sequence[int]) -> Value:
        """Broadcast to a shape."""
        value = self.ranked(value, len(shape))
        times = [shape[axis] // value.tensor.shape[place] for place, axis in enumerate(value.order)]
        return self.repeated(value, times)

    def repeated(self, value: Value, times: Sequence[int]) -> Value:
        """Repeated along each stored axis."""
        if all(item == 1 for item in times):
            return value
        sizes = [size * item for size, item in zip(value.tensor.shape, times, strict=True)]
        return Value(self.emit(Tile(), (value.tensor, self.sizes(times)), sizes, value.tensor.dtype), value.order)

    def looked_up(self, value: Value, axis: int, indices: Array | Value) -> Value:
        """Slices of a value along an axis at places, a vector: a constant, or int32."""
        order = (axis, *(other for other in value.order if other != axis))
        tensor, dtype = self.stored(value, order), value.tensor.dtype
        if dtype == Type.BOOL:
            tensor = self.cast(Value.dense(tensor), Type.INT8).tensor
        rows = self.reshaped(tensor, (1, tensor.shape[0], tensor.size // max(tensor.shape[0], 1)))
        places = (
            self.reshaped(self.contiguous(indices), (1, indices.tensor.size))
            if isinstance(indices, Value)
            else self.graph.constant(indices.reshape(1, -1), Type.INT32)
        )
        count = places.shape[1]
        made = self.emit(Gather(), (rows, places), (1, count, rows.shape[2]), tensor.dtype)
        made = self.reshaped(made, (count, *tensor.shape[1:]))
        found = Value(made, order)
        return self.cast(found, Type.BOOL) if dtype == Type.BOOL else found

    def shaped(self, value: Value, shape: Sequence[int]) -> Value:
        """The elements in another shape."""
        return self.view(value, tuple(shape))

    def turned(self, value: Value) -> Value:
        """The value in the program's layout."""
        return Value(self.contiguous(value), identity(len(value.order)))


#: What a call becomes: a value, or several where an operator has several results (None: nothing uses it).
Made: TypeAlias = "Value | tuple[Value | None, ...]"
#: Lowers one call of the program.
Lower: TypeAlias = Callable[[VgfBuilder, Call], Made]
