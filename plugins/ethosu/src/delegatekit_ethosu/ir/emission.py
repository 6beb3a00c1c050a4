"""Appends operations to a TOSA graph, and keeps Vela (5.1) from what it compiles wrongly."""

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
        #: The name of the tensors that are made next.
        self.name = "value"
        #: TOSA tensor -> debug handles of the nodes that it was made for.
        self.handles: Final[dict[int | str, tuple[int, ...]]] = {}
        #: Debug handles of what is lowered now.
        self.origin: tuple[int, ...] = ()
        self._producers: Final[dict[str, Operation]] = {}

    def emit(
        self, operator: Operator, inputs: Sequence[Tensor], shape: Sequence[int], dtype: DType, name: str = ""
    ) -> Tensor:
        """Append an operation; its result has the name of the node at hand, followed by `name`."""
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
        """Of two matrices: into a larger tensor, and in another shape, Vela (5.1) writes it in the wrong places."""
        made = self._origin_of(tensor, Reshape, Rescale, Clamp)
        return made is not None and isinstance(made.operator, Matmul)

    def _is_saturated(self, tensor: Tensor) -> bool:
        """Whether it was only cut off to fewer bits: Vela (5.1) joins what scales it then to what made it."""
        made = self._origin_of(tensor, Reshape, Transpose)
        if made is None or not isinstance(made.operator, Rescale) or made.inputs[0].dtype <= made.output.dtype:
            return False
        multiplier, shift = (item.data for item in made.inputs[1:3])
        assert multiplier is not None and shift is not None
        return bool((multiplier == 1 << shift.astype(np.int64)).all())

    def _is_repeated(self, tensor: Tensor) -> bool:
        """Whether it is int16 made larger: what scales it then Vela (5.1) joins to that, and gets other numbers."""
        made = self._origin_of(tensor, Reshape, Transpose)
        return made is not None and isinstance(made.operator, Resize) and made.output.dtype == DType.INT16

    def copied(self, part: Tensor) -> Tensor:
        """A tensor of its own, made by an operation that changes nothing.

        Vela (5.1) reads slices, above all, where they lie; in another shape, some of them in the wrong places.
        """
        if part.dtype in (DType.INT8, DType.INT16):
            return self.emit(Clamp(*INTEGER_RANGES[part.dtype]), (part,), part.shape, part.dtype, "part")
        return self.emit(Add(), (part, self.single(0, part.shape)), part.shape, part.dtype, "part")

    def producer(self, tensor: Tensor) -> Operation | None:
        """The operation that made a tensor; None for inputs and constants."""
        return self._producers.get(tensor.name)

    def _origin_of(self, tensor: Tensor, *passed: type[Operator]) -> Operation | None:
        """The operation that made a tensor, or what operators of these kinds, one after the other, made it of."""
        made = self.producer(tensor)
        while made is not None and isinstance(made.operator, passed):
            made = self.producer(made.inputs[0])
        return made

    def finish(self) -> Graph:
        """The graph without operations whose results are not used."""
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
        """One int32 that is combined, as right or left operand, with every element of a tensor of this shape."""
        # On the left of more than four axes Vela (5.1) would read beyond its end.
        sizes = shape if left and len(shape) > COMMON_RANK else [1] * len(shape)
        return self.graph.constant(np.full(sizes, value), DType.INT32)


def _is_misread(operator: Operator, x: Tensor) -> bool:
    """Whether Vela (5.1) reads a slice, which it does not copy, in the wrong places.

    It forgets the padding in front of several samples, and of transposed convolutions, which pad by themselves; it
    reduces and multiplies in another shape; and it takes the wrong pixels where it cuts a convolution into those that
    a larger dilation leaves side by side. A clamp in between that changes nothing keeps it from that.
    """
    if isinstance(operator, TransposeConv2d | Matmul | ReduceMax | ReduceSum | Gather):
        return True
    if isinstance(operator, Conv2d | DepthwiseConv2d) and max(operator.dilation) > MAX_DILATION:
        return True
    padded = isinstance(operator, Conv2d | DepthwiseConv2d | MaxPool2d | AvgPool2d) and any(operator.pad)
    return padded and x.shape[0] > 1
