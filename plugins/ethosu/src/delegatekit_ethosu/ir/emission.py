"""Avoids, in the operations of a TOSA graph, patterns that Vela (5.1) miscompiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegatekit_toolkit.tosa import (
    AvgPool2d,
    Clamp,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    DType,
    Gather,
    Matmul,
    MaxPool2d,
    Operator,
    Pad,
    ReduceMax,
    ReduceSum,
    Rescale,
    Reshape,
    Resize,
    Slice,
    Tensor,
    Transpose,
    TransposeConv2d,
)
from delegatekit_toolkit.tosa.lowering.builder import TosaBuilder
from delegatekit_toolkit.tosa.lowering.limits import COMMON_RANK, MAX_DILATION
from delegatekit_toolkit.tosa.lowering.program import ProgramBuilder
from delegatekit_toolkit.tosa.lowering.ways import Ways


class VelaEmission(TosaBuilder):
    """A builder of TOSA graphs that Vela compiles rightly."""

    def trial(self, ways: Ways) -> TosaBuilder:
        """An empty builder for a graph of its own, which shares the choices made so far."""
        return VelaEmission("trial", self.device, ways=ways)

    def emit(
        self, operator: Operator, inputs: Sequence[Tensor], shape: Sequence[int], dtype: DType, name: str = ""
    ) -> Tensor:
        """Append an operation; its result has the name of the current node, followed by `name`."""
        if _is_misread(operator, inputs[0]):
            inputs = [self.copied(item) if self._is_sliced(item) else item for item in inputs]
        elif isinstance(operator, Pad | Concat):
            inputs = [self.copied(item) if self._is_product(item) else item for item in inputs]
        elif isinstance(operator, Rescale) and (self._is_saturated(inputs[0]) or self._is_repeated(inputs[0])):
            inputs = [self.copied(inputs[0]), *inputs[1:]]
        return super().emit(operator, inputs, shape, dtype, name)

    def _is_sliced(self, tensor: Tensor) -> bool:
        made = self.origin_of(tensor, Reshape)
        return made is not None and isinstance(made.operator, Slice)

    def _is_product(self, tensor: Tensor) -> bool:
        """True for a matrix product: Vela (5.1) misplaces it in a larger tensor and in another shape."""
        made = self.origin_of(tensor, Reshape, Rescale, Clamp)
        return made is not None and isinstance(made.operator, Matmul)

    def _is_saturated(self, tensor: Tensor) -> bool:
        """True if it was only saturated to fewer bits: Vela (5.1) then fuses a rescale with the operation before it."""
        made = self.origin_of(tensor, Reshape, Transpose)
        if made is None or not isinstance(made.operator, Rescale) or made.inputs[0].dtype <= made.output.dtype:
            return False
        multiplier, shift = (item.data for item in made.inputs[1:3])
        assert multiplier is not None and shift is not None
        return bool((multiplier == 1 << shift.astype(np.int64)).all())

    def _is_repeated(self, tensor: Tensor) -> bool:
        """True if it is a repeated int16 tensor to be rescaled: Vela (5.1) fuses the two, with wrong numbers."""
        made = self.origin_of(tensor, Reshape, Transpose)
        return made is not None and isinstance(made.operator, Resize) and made.output.dtype == DType.INT16

    def readable(self, tensor: Tensor) -> Tensor:
        """A slice is copied: Vela (5.1) reads it in place; in another shape, some of them at wrong addresses."""
        made = self.producer(tensor)
        return self.copied(tensor) if made is not None and isinstance(made.operator, Slice) else tensor

    def single(self, value: int, shape: Sequence[int], *, left: bool = False) -> Tensor:
        """A single int32 for every element of a tensor.

        As left operand of more than four axes Vela (5.1) would read past its end.
        """
        if not (left and len(shape) > COMMON_RANK):
            return super().single(value, shape)
        return self.graph.constant(np.full(tuple(shape), value), DType.INT32)


class VelaProgram(VelaEmission, ProgramBuilder):
    """The argument of lowering functions, for Vela."""


def _is_misread(operator: Operator, x: Tensor) -> bool:
    """True if Vela (5.1) reads a slice, which it does not copy, at wrong addresses.

    It ignores the padding before several samples, and before transposed convolutions, which pad by themselves; it
    reduces and multiplies in another shape; and it reads wrong pixels if it splits a convolution with a larger dilation
    into interleaved ones. A clamp in between that changes nothing prevents that.
    """
    if isinstance(operator, TransposeConv2d | Matmul | ReduceMax | ReduceSum | Gather):
        return True
    if isinstance(operator, Conv2d | DepthwiseConv2d) and max(operator.dilation) > MAX_DILATION:
        return True
    padded = isinstance(operator, Conv2d | DepthwiseConv2d | MaxPool2d | AvgPool2d) and any(operator.pad)
    return padded and x.shape[0] > 1
