"""Appends operations to a TOSA graph, and avoids patterns that Vela (5.1) miscompiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from delegatekit_toolkit.tosa import (
    Add,
    AvgPool2d,
    Clamp,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    DType,
    Gather,
    Graph,
    Matmul,
    MaxPool2d,
    Operation,
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
from delegatekit_toolkit.tosa.types import INTEGER_RANGES

from ..targets import COMMON_RANK, MAX_DILATION


class Emission:
    """Emits TOSA operators; tensors are named after the program's node that is lowered."""

    def __init__(self, name: str) -> None:
        self.graph: Final = Graph(name)
        #: The name of the next tensors.
        self.name = "value"
        #: TOSA tensor -> debug handles of the nodes that it was made for.
        self.handles: Final[dict[int | str, tuple[int, ...]]] = {}
        #: Debug handles of the current node.
        self.origin: tuple[int, ...] = ()
        self._producers: Final[dict[str, Operation]] = {}

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
        made = self.graph.add(operator, inputs, shape, dtype, f"{self.name}.{name}" if name else self.name)
        self._producers[made.name] = self.graph.operations[-1]
        if self.origin:
            self.handles[made.name] = self.origin
        return made

    def _is_sliced(self, tensor: Tensor) -> bool:
        made = self._origin_of(tensor, Reshape)
        return made is not None and isinstance(made.operator, Slice)

    def _is_product(self, tensor: Tensor) -> bool:
        """True for a matrix product: Vela (5.1) misplaces it in a larger tensor and in another shape."""
        made = self._origin_of(tensor, Reshape, Rescale, Clamp)
        return made is not None and isinstance(made.operator, Matmul)

    def _is_saturated(self, tensor: Tensor) -> bool:
        """True if it was only saturated to fewer bits: Vela (5.1) then fuses a rescale with the operation before it."""
        made = self._origin_of(tensor, Reshape, Transpose)
        if made is None or not isinstance(made.operator, Rescale) or made.inputs[0].dtype <= made.output.dtype:
            return False
        multiplier, shift = (item.data for item in made.inputs[1:3])
        assert multiplier is not None and shift is not None
        return bool((multiplier == 1 << shift.astype(np.int64)).all())

    def _is_repeated(self, tensor: Tensor) -> bool:
        """True if it is a repeated int16 tensor to be rescaled: Vela (5.1) fuses the two, with wrong numbers."""
        made = self._origin_of(tensor, Reshape, Transpose)
        return made is not None and isinstance(made.operator, Resize) and made.output.dtype == DType.INT16

    def copied(self, part: Tensor) -> Tensor:
        """A copy of the tensor, made by an operation that changes nothing.

        Vela (5.1) reads slices, above all, in place; in another shape, some of them at wrong addresses.
        """
        if part.dtype in (DType.INT8, DType.INT16):
            return self.emit(Clamp(*INTEGER_RANGES[part.dtype]), (part,), part.shape, part.dtype, "part")
        return self.emit(Add(), (part, self.single(0, part.shape)), part.shape, part.dtype, "part")

    def producer(self, tensor: Tensor) -> Operation | None:
        """The operation that made a tensor; None for inputs and constants."""
        return self._producers.get(tensor.name)

    def _origin_of(self, tensor: Tensor, *passed: type[Operator]) -> Operation | None:
        """The operation that made a tensor, or the input of a chain of operators of these kinds."""
        made = self.producer(tensor)
        while made is not None and isinstance(made.operator, passed):
            made = self.producer(made.inputs[0])
        return made

    def finish(self) -> Graph:
        """The graph without dead operations."""
        used = set(map(id, self.graph.outputs))
        kept = []
        for operation in reversed(self.graph.operations):
            if id(operation.output) in used:
                used.update(map(id, operation.inputs))
                kept.append(operation)
        self.graph.operations[:] = reversed(kept)
        self.graph.verify()
        return self.graph

    def sizes(self, values: Sequence[int]) -> Tensor:
        """A list of sizes as an operand."""
        return self.graph.constant(values, DType.SHAPE)

    def number(self, value: int, dtype: DType = DType.INT8) -> Tensor:
        """One integer as an operand: a zero point, say."""
        return self.graph.constant([value], dtype)

    def single(self, value: int, shape: Sequence[int], *, left: bool = False) -> Tensor:
        """A single int32 that is combined, as right or left operand, with every element of a tensor of this shape."""
        # As left operand of more than four axes Vela (5.1) would read past its end.
        sizes = shape if left and len(shape) > COMMON_RANK else [1] * len(shape)
        return self.graph.constant(np.full(sizes, value), DType.INT32)


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
