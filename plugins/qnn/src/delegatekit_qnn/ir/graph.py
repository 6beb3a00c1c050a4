"""Tensors and operations of a QNN graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .types import DataType

Array: TypeAlias = "NDArray[Any]"


@dataclass(frozen=True)
class Encoding:
    """The quantization of a tensor: real = scale * (integer - zero point).

    One scale and zero point, or one for each index along `axis`.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    #: Bits of weights with less than 8.
    bits: int | None = None

    @property
    def scale(self) -> float:
        """The one scale."""
        (found,) = self.scales
        return found

    @property
    def zero_point(self) -> int:
        """The one zero point."""
        (found,) = self.zero_points
        return found


@dataclass(eq=False)
class Tensor:
    """A tensor of the graph, with its axes in memory order."""

    shape: tuple[int, ...]
    datatype: DataType
    encoding: Encoding | None = None
    #: The elements, if known.
    data: Array | None = None
    #: The name, if the runtime reads it.
    name: str = ""
    #: "input", "output", or "" for intermediate tensors.
    role: str = ""

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True)
class Scalar:
    """A number as a parameter of an operation."""

    datatype: DataType
    value: float | int | bool


#: A parameter: a number, or an array of uint32 or int32.
Parameter: TypeAlias = "Scalar | Array"


@dataclass(frozen=True, eq=False)
class Node:
    """An operation."""

    kind: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    name: str = ""


class Graph:
    """The operations of one method, in order of execution."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.nodes: Final[list[Node]] = []
        self.inputs: Final[list[Tensor]] = []
        self.outputs: Final[list[Tensor]] = []

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs, followed by all others in order of first use, each once."""
        found = dict.fromkeys(self.inputs)
        for node in self.nodes:
            found.update(dict.fromkeys((*node.inputs, *node.outputs)))
        return tuple(found)

    @property
    def has_floats(self) -> bool:
        """True if something is computed in floating point (values only converted to or from integers do not count)."""
        moves = ("Quantize", "Dequantize", "Convert", "Cast")
        return any(item.datatype.is_float for node in self.nodes if node.kind not in moves for item in node.outputs)


def uint32(*values: int) -> Array:
    """Numbers as a parameter."""
    return np.array(values, dtype=np.uint32)
