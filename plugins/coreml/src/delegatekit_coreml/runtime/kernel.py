"""What executes one kind of MIL operation: a function, and how its parameters are taken from the program.

A function's signature says it all: parameters that are `Tensor` may be computed, all others are known when the program
is loaded. coremltools writes MIL's defaults into each program: what may be left out here has none, or is not there in
the operations of earlier systems. Floating-point tensors are float32 whatever the program declares; results that it
declares as float16 are rounded to it after each operation, unless the operation only moves elements.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from delegatekit_api import FormatError

from ..ir.program import Literal
from ..ir.types import DataType

Tensor: TypeAlias = torch.Tensor
#: Tensors of which each may be computed.
Tensors: TypeAlias = tuple[torch.Tensor, ...]
#: Sizes, axes and the like: a vector of integers that the program knows.
Ints: TypeAlias = tuple[int, ...]
#: A vector of booleans that the program knows.
Flags: TypeAlias = tuple[bool, ...]

#: No vector of sizes, axes and the like has more numbers: one element in a file may stand for many.
_MOST_NUMBERS = 1 << 16
#: Parameters that the program knows, or that are computed from sizes.
_SIZES = ("Ints", "int")


@dataclass(frozen=True)
class Parameter:
    """One parameter: what it is, and whether it may be left out."""

    kind: str
    optional: bool

    @property
    def is_size(self) -> bool:
        """Whether it may be computed from sizes."""
        return self.kind in _SIZES


@dataclass(frozen=True)
class Kernel:
    """How an operation is executed."""

    function: Callable[..., Any]
    parameters: Mapping[str, Parameter]
    #: Whether it only moves elements, so that there is nothing to round: often it copies none.
    moves: bool
    #: Whether it is executed once, when the program is loaded: what it takes are constants.
    once: bool
    #: Whether its result follows from the sizes of what it takes.
    of_sizes: bool


def kernel(function: Callable[..., Any], *, moves: bool = False, once: bool = False, of_sizes: bool = False) -> Kernel:
    """A kernel, from the signature of its function."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = str(parameter.annotation).removesuffix(" | None")
        found[name] = Parameter(kind, parameter.default is not inspect.Parameter.empty)
    return Kernel(function, found, moves, once, of_sizes)


def size_argument(value: torch.Tensor, kind: str) -> int | tuple[int, ...]:
    """Computed sizes as the argument that a kernel takes. Raises ValueError for what are no sizes."""
    if value.dim() > 1 or value.is_floating_point() or (kind == "int" and value.numel() != 1):
        raise ValueError("computed sizes are no vector of integers")
    return int(value) if kind == "int" else tuple(value.reshape(-1).tolist())


def held_as(datatype: DataType) -> torch.dtype:
    """The type in which values of a type are computed."""
    return torch.float32 if datatype.is_float else datatype.torch


def known(value: Literal, kind: str, where: str) -> Any:
    """A literal as the argument that a kernel takes. Raises FormatError for one of another type."""
    if kind == "str":
        if isinstance(value, str):
            return value
    elif isinstance(value, torch.Tensor) and value.numel() <= _MOST_NUMBERS:
        numbers = value.reshape(-1).tolist()
        if kind in ("int", "float", "bool") and len(numbers) == 1 and value.dim() <= 1:
            return {"int": int, "float": float, "bool": bool}[kind](numbers[0])
        if kind == "Ints" and value.dim() <= 1 and not value.is_floating_point():
            return tuple(map(int, numbers))
        if kind == "Flags" and value.dim() <= 1:
            return tuple(map(bool, numbers))
    raise FormatError(f"a parameter is not of the kind {kind}", where=where)
