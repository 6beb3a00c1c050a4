"""A `TosaBuilder` with access to the program that it lowers: the integers of each tensor, and their scales."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import torch

from delegatekit_api import Call, LoweringError, Operand, ProgramView
from delegatekit_api.schemes import Quantization
from delegatekit_toolkit.tosa.types import Array
from delegatekit_toolkit.units import Unit

from .builder import TosaBuilder
from .device import Device
from .values import INTEGERS, Result, Scale, Value
from .ways import CountCycles

if TYPE_CHECKING:
    from torch.fx import Node


class ProgramBuilder(TosaBuilder):
    """The argument of lowering functions: the graph under construction, and the program's tensors in it."""

    def __init__(self, program: ProgramView, device: Device, cycles: CountCycles | None) -> None:
        super().__init__(program.method, device, cycles)
        self.program: Final = program
        self._values: Final[dict[Operand, Value]] = {}
        self._unit: Unit | None = None
        self._end: Call | None = None

    @property
    def unit(self) -> Unit:
        """The unit being lowered."""
        assert self._unit is not None
        return self._unit

    @property
    def end(self) -> Call:
        """The quantize of the result being made, or the call that returns booleans."""
        assert self._end is not None
        return self._end

    def begin(self, unit: Unit, end: Call) -> None:
        """Set the unit that is lowered next, and which of its quantizes."""
        self._unit, self._end = unit, end
        self._name(unit.anchor.node.name if unit.inner else end.node.name, unit.nodes)

    def begin_output(self, operand: Operand) -> None:
        """Announce that an output of the program is made next."""
        self._name(f"{operand.name}.output", (operand.node,))

    def _name(self, name: str, nodes: Iterable[Node]) -> None:
        self.name = name
        handles = (node.meta.get("debug_handle") for node in nodes)
        self.origin = tuple(dict.fromkeys(handle for handle in handles if handle))

    def define(self, operand: Operand, value: Value) -> None:
        """Record the value of a tensor of integers. Raises LoweringError if the shape is not the tensor's."""
        if value.shape != operand.shape:
            message = f"was lowered to shape {value.shape}, not {operand.shape}"
            raise LoweringError(message, where=operand.description)
        self._values[operand] = value

    def found(self, operand: Operand) -> Value | None:
        """The value that a tensor was defined with; None if it was not yet."""
        return self._values.get(operand)

    def integers(self, operand: Operand) -> Value:
        """The integers that the operand is dequantized from, or the operand itself if it has integers."""
        source = operand.integers or operand
        found = self._values.get(source)
        if found is None:
            data = source.constant
            if data is None:
                raise LoweringError("is used before it is lowered", where=source.description)
            tensor = self.graph.constant(data.numpy(), INTEGERS[data.dtype], source.name)
            found = self._values[source] = Value.dense(tensor)
        return found

    def scale(self, operand: Operand) -> Scale:
        """The scale and zero point of a dequantized operand with one of each."""
        return scale_of(self.quantization(operand), operand.description)

    def quantization(self, operand: Operand) -> Quantization:
        """The quantization of a dequantized operand."""
        found = operand.quantization
        if found is None:
            raise LoweringError("is not quantized", where=operand.description)
        return found

    def numbers(self, operand: Operand | None) -> Array | None:
        """A constant in double precision: a float one, or one dequantized from integers; None for None."""
        if operand is None:
            return None
        data = operand.constant
        if data is not None:
            return data.detach().double().numpy()
        data = None if operand.integers is None else operand.integers.constant
        if data is None:
            raise LoweringError("is not a constant", where=operand.description)
        found = self.quantization(operand)
        scale, zero = (
            item.double().numpy() if isinstance(item, torch.Tensor) else np.float64(item)
            for item in (found.scale, found.zero_point)
        )
        if found.axis is not None:
            sizes = [1] * data.dim()
            sizes[found.axis] = -1
            scale, zero = scale.reshape(sizes), zero.reshape(sizes)
        numbers: Array = (data.numpy().astype(np.float64) - zero) * scale
        return numbers


def scale_of(quantization: Quantization, where: str) -> Scale:
    """One scale and zero point for a whole tensor. Raises LoweringError, with `where`, if there are several."""
    scale, zero_point = quantization.scale, quantization.zero_point
    if isinstance(scale, torch.Tensor) or isinstance(zero_point, torch.Tensor):
        raise LoweringError("has a scale for each channel", where=where)
    return Scale(float(scale), int(zero_point), INTEGERS[quantization.dtype])


#: Lowers a call with quantized operands: `Result` defines how its result is stored.
LowerCall: TypeAlias = Callable[[ProgramBuilder, Call, Result], Value]
