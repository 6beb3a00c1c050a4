"""The program of a partition under construction: integers in two orders of dimensions, and calls of the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import torch
from torch.fx import Node

from delegatekit_api import Call, LoweringError, Operand, ProgramView, TensorSpec
from delegatekit_api.operators import Argument, RuntimeTensor
from delegatekit_toolkit.operator_programs import OperatorCalls
from delegatekit_toolkit.units import Unit

from .numbers import Scale
from .scratch import Scratch

#: (N, C, H, W) in memory as (N, H, W, C).
CHANNELS_LAST: Final = (0, 2, 3, 1)
_AS_WRITTEN: Final = (0, 1, 2, 3)

#: A function that lowers a call to a tensor of integers with this scale.
LowerCall: TypeAlias = "Callable[[ProgramBuilder, Call, Scale], RuntimeTensor]"


class ProgramBuilder:
    """Calls of the library's operators, and the tensors of nodes."""

    def __init__(self, view: ProgramView, extension: str) -> None:
        self.view: Final = view
        self.extension: Final = extension
        self.sizes: Final = Scratch(extension)
        self.calls: Final = OperatorCalls()
        self._tensors: Final[dict[Node, RuntimeTensor]] = {}
        self._arranged: Final[dict[tuple[RuntimeTensor, tuple[int, ...]], RuntimeTensor]] = {}
        for node in view.inputs:
            operand = view.operand(node)
            self.define(node, self.calls.input(TensorSpec(operand.dtype_name, tuple(operand.shape))))

    # -- tensors -----------------------------------------------------------------------------------------------------

    def begin(self, unit: Unit | None, call: Call) -> None:
        """The calls that follow are for a unit, or a single call."""
        nodes = [item.node for item in unit.inner or unit.results] if unit is not None else [call.node]
        handles = dict.fromkeys(node.meta.get("debug_handle") for node in nodes)
        self.calls.debug_handles = tuple(handle for handle in handles if handle is not None)

    def define(self, node: Node, tensor: RuntimeTensor) -> None:
        """Set the tensor of a node."""
        self._tensors[node] = tensor

    def tensor(self, operand: Operand) -> RuntimeTensor:
        """The tensor of a value. Raises LoweringError for one that is not computed."""
        found = self._tensors.get(operand.node)
        if found is None:
            data = operand.constant
            if data is None:
                raise LoweringError("is used before it is lowered", where=operand.description)
            found = self._tensors[operand.node] = self.calls.constant(data)
        return found

    def integers(self, operand: Operand) -> RuntimeTensor:
        """The integers that an operand is dequantized from. Raises LoweringError for another operand."""
        if operand.integers is None:
            raise LoweringError("is not dequantized from integers", where=operand.description)
        return self.tensor(operand.integers)

    def scale(self, operand: Operand) -> Scale:
        """The scale of an operand that is dequantized."""
        return Scale.of(operand.quantization, operand.description)

    # -- orders of dimensions ----------------------------------------------------------------------------------------

    def as_written(self, tensor: RuntimeTensor) -> RuntimeTensor:
        """The tensor with its dimensions in memory in the order of its shape."""
        return self._reordered(tensor, ())

    def channels_last(self, tensor: RuntimeTensor) -> RuntimeTensor:
        """An image (N, C, H, W) with its channels last in memory."""
        return self._reordered(tensor, CHANNELS_LAST)

    def alike(self, tensors: Sequence[RuntimeTensor]) -> list[RuntimeTensor]:
        """Tensors with their dimensions in one order: channels last, if one of them is so and all are images."""
        last = any(item.spec.dim_order for item in tensors) and all(len(item.spec.shape) == 4 for item in tensors)
        return [self.channels_last(item) if last else self.as_written(item) for item in tensors]

    def _reordered(self, tensor: RuntimeTensor, order: tuple[int, ...]) -> RuntimeTensor:
        spec = tensor.spec
        if spec.dim_order == order:
            return tensor
        key = (tensor, order)
        if key not in self._arranged:
            wanted = TensorSpec(spec.dtype, spec.shape, dim_order=order)
            if is_ambiguous(spec.shape) and tensor.data is None:
                made = self.calls.view(tensor, wanted)
            else:
                operator = "dim_order_ops::_clone_dim_order.out"
                made = self.calls.call(operator, tensor, False, order or _AS_WRITTEN, result=wanted)
            self._arranged[key] = made
        return self._arranged[key]

    def reshaped(self, tensor: RuntimeTensor, shape: Sequence[int]) -> RuntimeTensor:
        """The same elements, in the order as written, under other sizes."""
        plain = self.as_written(tensor)
        return self.calls.view(plain, TensorSpec(plain.spec.dtype, tuple(shape)))

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(
        self, operator: str, *arguments: Argument, shape: Sequence[int], like: RuntimeTensor | None = None
    ) -> RuntimeTensor:
        """The int8 result of an operator of the library, in the order of dimensions of `like`."""
        order = () if like is None else like.spec.dim_order
        result = TensorSpec("int8", tuple(shape), dim_order=order)
        return self.calls.call(f"cortex_m::{operator}.out", *arguments, result=result)

    def own(self, operator: str, *arguments: Argument, shape: Sequence[int]) -> RuntimeTensor:
        """The int8 result of an operator of the runtime, "cat.out"."""
        return self.calls.call(f"aten::{operator}", *arguments, result=TensorSpec("int8", tuple(shape)))

    def table(self, tensor: RuntimeTensor, entries: Sequence[int]) -> RuntimeTensor:
        """The entries of a table of 256, one for each integer from -128 on; the tensor itself if nothing changes."""
        if list(entries) == list(range(-128, 128)):
            return tensor
        lut = self.calls.constant(torch.tensor(entries, dtype=torch.int8))
        return self.call("quantized_activation", tensor, lut, shape=tensor.spec.shape, like=tensor)

    def rescaled(self, tensor: RuntimeTensor, before: Scale, after: Scale) -> RuntimeTensor:
        """Integers of another scale, within the range of `after`: by a table."""
        if before.like(after) and (before.low, before.high) == (after.low, after.high):
            return tensor
        numbers = (torch.arange(-128, 128, dtype=torch.float32) - before.zero_point) * before.scale
        return self.table(tensor, stored(numbers, after))

    def bounded(self, tensor: RuntimeTensor, result: Scale) -> RuntimeTensor:
        """Integers of the result's scale, within its range."""
        return self.table(tensor, [min(result.high, max(result.low, entry)) for entry in range(-128, 128)])


def stored(numbers: torch.Tensor, scale: Scale) -> list[int]:
    """PyTorch's integers for numbers."""
    bounds = scale.low, scale.high
    quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default
    found: list[int] = quantize(numbers.float(), scale.scale, scale.zero_point, *bounds, torch.int8).tolist()
    return found


def is_ambiguous(shape: Sequence[int]) -> bool:
    """True if an image has the same bytes in both orders."""
    return len(shape) == 4 and (shape[1] == 1 or math.prod(shape[2:]) == 1)
