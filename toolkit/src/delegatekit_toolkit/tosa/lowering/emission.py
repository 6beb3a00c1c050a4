"""Appends operations to a TOSA graph. A device's own emission may avoid what its compiler gets wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from delegatekit_toolkit.tosa import Add, Clamp, DType, Graph, Operation, Operator, Tensor
from delegatekit_toolkit.tosa.types import INTEGER_RANGES


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
        made = self.graph.add(operator, inputs, shape, dtype, f"{self.name}.{name}" if name else self.name)
        self._producers[made.name] = self.graph.operations[-1]
        if self.origin:
            self.handles[made.name] = self.origin
        return made

    def copied(self, part: Tensor) -> Tensor:
        """A copy of an integer tensor, made by an operation that changes nothing."""
        if part.dtype in (DType.INT8, DType.INT16):
            return self.emit(Clamp(*INTEGER_RANGES[part.dtype]), (part,), part.shape, part.dtype, "part")
        return self.emit(Add(), (part, self.single(0, part.shape)), part.shape, part.dtype, "part")

    def readable(self, tensor: Tensor) -> Tensor:
        """The tensor as it may be read in another shape: itself, or a copy where a compiler cannot do that."""
        return tensor

    def producer(self, tensor: Tensor) -> Operation | None:
        """The operation that made a tensor; None for inputs and constants."""
        return self._producers.get(tensor.name)

    def origin_of(self, tensor: Tensor, *passed: type[Operator]) -> Operation | None:
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
        return self.graph.constant(np.full([1] * len(shape), value), DType.INT32)
