"""A MIL program in a package's form: plain data, independent of the library that made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch

from .types import DataType

#: A size, or None if it changes from call to call.
Extent: TypeAlias = "int | None"


@dataclass(frozen=True)
class TensorType:
    """Element type and sizes of a value."""

    datatype: DataType
    shape: tuple[Extent, ...]

    def __str__(self) -> str:
        return f"{self.datatype.mil}[{', '.join('?' if size is None else str(size) for size in self.shape)}]"


#: An immediate value of a program: a tensor, a text, or a list of these.
Literal: TypeAlias = "torch.Tensor | str | tuple[Literal, ...]"


@dataclass(frozen=True)
class Name:
    """An operand of an operation, by its name."""

    name: str


#: One argument of an operation: values computed before, or literals; several if the parameter is a list.
Argument: TypeAlias = "tuple[Name | Literal, ...]"


@dataclass(frozen=True)
class Operation:
    """One operation: its parameters by name, and its results."""

    kind: str
    arguments: Mapping[str, Argument]
    #: Name and type of each result; the type is None for non-tensors.
    results: tuple[tuple[str, TensorType | None], ...]
    #: For messages.
    where: str


def symbol(output: str, kind: str) -> str:
    """The name of an operation in ExecuTorch's runtime, by its first result.

    >>> symbol("linear_0", "linear")
    'linear_0:linear'
    """
    return f"{output}:{kind}"


@dataclass(frozen=True)
class Function:
    """A function: inputs and states by name, operations in their order, names of the outputs."""

    inputs: Mapping[str, TensorType]
    states: Mapping[str, TensorType]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Feature:
    """The form of a caller's tensor at a model's input or output."""

    datatype: DataType
    #: The usual sizes; empty for an output whose sizes change.
    shape: tuple[int, ...]
    #: The smallest and the largest size of each axis; empty if sizes do not change in ranges.
    ranges: tuple[tuple[int, int], ...] = ()
    #: The enumerated shapes, including the default one; empty if there are none.
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def is_flexible(self) -> bool:
        """True if a size changes from call to call."""
        return bool(self.ranges or self.shapes)

    @property
    def changes(self) -> tuple[bool, ...]:
        """For each axis, true if its size changes from call to call."""
        if self.shapes:
            return tuple(len(set(sizes)) > 1 for sizes in zip(*self.shapes, strict=True))
        return tuple(low != high for low, high in self.ranges) or (False,) * len(self.shape)

    def takes(self, shape: tuple[int, ...]) -> bool:
        """True if a call may have these sizes."""
        if self.shapes:
            return shape in self.shapes
        if not self.ranges:
            return shape == self.shape
        return len(shape) == len(self.ranges) and all(
            low <= size <= high for size, (low, high) in zip(shape, self.ranges, strict=True)
        )

    def __str__(self) -> str:
        if self.shapes:
            sizes = " or ".join(map(str, self.shapes))
        elif self.ranges:
            sizes = f"({', '.join(str(low) if low == high else f'{low}..{high}' for low, high in self.ranges)})"
        else:
            sizes = str(self.shape)
        return f"{self.datatype.mil} {sizes}"


@dataclass(frozen=True)
class Model:
    """A model: its function, and the forms of the caller's input and output tensors, by name."""

    version: int
    function: Function
    inputs: Mapping[str, Feature]
    outputs: Mapping[str, Feature]
