"""A MIL program as a package has it: plain data, without the library that made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch

from .types import DataType

#: A size, or None where it changes from call to call.
Extent: TypeAlias = "int | None"


@dataclass(frozen=True)
class TensorType:
    """Element type and sizes of a value."""

    datatype: DataType
    shape: tuple[Extent, ...]

    def __str__(self) -> str:
        return f"{self.datatype.mil}[{', '.join('?' if size is None else str(size) for size in self.shape)}]"


#: What a program says in place: a tensor, a text, or a list of these.
Literal: TypeAlias = "torch.Tensor | str | tuple[Literal, ...]"


@dataclass(frozen=True)
class Name:
    """A value that an operation reads, by its name."""

    name: str


#: One argument of an operation: values computed before, or literals; several where the parameter is a list.
Argument: TypeAlias = "tuple[Name | Literal, ...]"


@dataclass(frozen=True)
class Operation:
    """One operation: its parameters by name, and what it defines."""

    kind: str
    arguments: Mapping[str, Argument]
    #: Name and type of each result; the type is None for what is not a tensor.
    results: tuple[tuple[str, TensorType | None], ...]
    #: For messages.
    where: str = ""


@dataclass(frozen=True)
class Function:
    """A function: inputs and states by name, operations in their order, names of the outputs."""

    inputs: Mapping[str, TensorType]
    states: Mapping[str, TensorType]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """A model: its function, and in which form the caller's tensors go in and out, by name."""

    version: int
    function: Function
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
