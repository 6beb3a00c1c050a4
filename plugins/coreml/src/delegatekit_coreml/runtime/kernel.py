"""Kernels of MIL operations: a function each, with parameters read from the program by its signature.

A function's signature defines everything: parameters that are `Tensor` may be computed, all others are known when the
program is loaded. coremltools writes MIL's defaults into each program: optional parameters here have none, or do not
exist in the operations of earlier systems. Floating-point tensors are float32 whatever the program declares; results
declared as float16 are rounded to it after each operation, unless the operation only moves elements.
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
#: Sizes, axes and the like: a vector of integers known to the program.
Ints: TypeAlias = tuple[int, ...]
#: A vector of booleans known to the program.
Flags: TypeAlias = tuple[bool, ...]

#: The maximum length of vectors of sizes, axes and the like: one element in a file may stand for many.
_MOST_NUMBERS = 1 << 16
#: Parameters known to the program, or computed from sizes.
_SIZES = ("Ints", "int")


@dataclass(frozen=True)
class Parameter:
    """One parameter: its kind, and whether it is optional."""

    kind: str
    optional: bool

    @property
    def is_size(self) -> bool:
        """True if it may be computed from sizes."""
        return self.kind in _SIZES


@dataclass(frozen=True)
class Kernel:
    """The implementation of an operation."""

    function: Callable[..., Any]
    parameters: Mapping[str, Parameter]
    #: True if it only moves elements, so that there is nothing to round: often it copies none.
    moves: bool
    #: True if it is executed once, when the program is loaded: its operands are constants.
    once: bool
    #: True if its result follows from the sizes of its operands.
    of_sizes: bool


def kernel(function: Callable[..., Any], *, moves: bool = False, once: bool = False, of_sizes: bool = False) -> Kernel:
    """A kernel, from the signature of its function."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = str(parameter.annotation).removesuffix(" | None")
        found[name] = Parameter(kind, parameter.default is not inspect.Parameter.empty)
    return Kernel(function, found, moves, once, of_sizes)


def size_argument(value: torch.Tensor, kind: str) -> int | tuple[int, ...]:
    """Computed sizes as a kernel's argument. Raises ValueError for invalid sizes."""
    if value.dim() > 1 or value.is_floating_point() or (kind == "int" and value.numel() != 1):
        raise ValueError("computed sizes are no vector of integers")
    return int(value) if kind == "int" else tuple(value.reshape(-1).tolist())


def held_as(datatype: DataType) -> torch.dtype:
    """The type in which values of a type are computed."""
    return torch.float32 if datatype.is_float else datatype.torch


def known(value: Literal, kind: str, where: str) -> Any:
    """A literal as a kernel's argument. Raises FormatError for one of another type."""
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
