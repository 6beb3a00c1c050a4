"""The XNNPACK graph in memory: values and nodes, between the lowering of ATen operators and the serialized blob."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from delegatekit_api import LoweringError
from delegatekit_toolkit.sizes import Size, dynamic_count, smallest

if TYPE_CHECKING:
    import torch

    from .operators import Operator

#: XNN_MAX_TENSOR_DIMS of XNNPACK.
MAX_RANK = 6

Shape = tuple[Size, ...]


class DataType(IntEnum):
    """Element types of XNNPACK values, as the blob numbers them."""

    INVALID = 0
    FLOAT32 = 1
    FLOAT16 = 2
    QINT8 = 3
    QUINT8 = 4
    QINT32 = 5
    QCINT8 = 6
    QCINT32 = 7
    QCINT4 = 8
    QDINT8 = 9
    QBINT4 = 10
    QPINT8 = 11
    INT32 = 12
    PFLOAT32 = 13
    BFLOAT16 = 14


#: Floating-point types of 16 bits.
HALF_TYPES = (DataType.FLOAT16, DataType.BFLOAT16)

#: Bits of one element; types that never lie in memory that we write are left out.
ELEMENT_BITS = {
    DataType.FLOAT32: 32,
    DataType.FLOAT16: 16,
    DataType.QINT8: 8,
    DataType.QUINT8: 8,
    DataType.QINT32: 32,
    DataType.QCINT8: 8,
    DataType.QCINT32: 32,
    DataType.QCINT4: 4,
    DataType.QBINT4: 4,
    DataType.INT32: 32,
    DataType.BFLOAT16: 16,
}


def constant_bytes(datatype: DataType, shape: Iterable[int]) -> int:
    """Size of a constant in bytes; rows of 4-bit types start at whole bytes."""
    *rows, last = (*shape,) or (1,)
    return math.prod(rows) * -(-last * ELEMENT_BITS[datatype] // 8)


class Bounds(NamedTuple):
    """The interval that a clamp keeps its values in."""

    low: float
    high: float

    def then(self, after: Bounds) -> Bounds:
        """One clamp that does what this one followed by `after` does."""
        low, high = (min(max(bound, after.low), after.high) for bound in self)
        return Bounds(low, high)


@dataclass(frozen=True)
class PerTensorQuantization:
    """real = scale * (integer - zero_point), one pair for the whole value."""

    scale: float
    zero_point: int = 0


@dataclass(frozen=True)
class PerRowQuantization:
    """Scales and zero points that XNNPACK finds in every call, one pair for all elements of the last `axes` axes."""

    axes: int = 1


class _Scales:
    """Equality of quantizations with several scales: the same memory, read in the same way."""

    def _key(self) -> tuple[object, ...]:
        return tuple(
            (item.data_ptr(), tuple(item.shape), item.stride()) if hasattr(item, "data_ptr") else item
            for item in vars(self).values()
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Scales) and type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, eq=False)
class PerChannelQuantization(_Scales):
    """real = scales[i] * integer, i the index along `axis`; `scales` is float32 of shape (n,). For constants."""

    scales: torch.Tensor
    axis: int


@dataclass(frozen=True, eq=False)
class PerGroupQuantization(_Scales):
    """real = scales[row, column // group] * integer; `scales` is float32 (rows, columns / group). For matrices."""

    scales: torch.Tensor
    group: int


Quantization = PerTensorQuantization | PerRowQuantization | PerChannelQuantization | PerGroupQuantization


@dataclass(frozen=True)
class Format:
    """How the elements of a value are stored, and what they stand for."""

    datatype: DataType = DataType.FLOAT32
    quantization: Quantization | None = None


@dataclass(eq=False)
class Value:
    """A tensor of the graph: dense, in the axis order of `shape`. With `data` it is a constant."""

    shape: Shape
    datatype: DataType = DataType.FLOAT32
    #: Constant contents: a tensor whose elements, in row-major order, are the value's (any shape, any strides).
    data: torch.Tensor | None = field(default=None, repr=False)
    quantization: Quantization | None = None
    producer: Node | None = field(default=None, repr=False)

    @property
    def format(self) -> Format:
        """How the elements are stored."""
        return Format(self.datatype, self.quantization)

    @property
    def size(self) -> Size:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(eq=False)
class Node:
    """One operator applied to values. Passes may replace inputs, output and clamp."""

    operator: Operator
    inputs: tuple[Value, ...]
    output: Value
    #: What happens to the result before it is stored; only operators with `fuses_clamp`, and Clamp itself.
    clamp: Bounds | None = None
    #: Debug handles of the operators of the program that the node came from.
    debug_handles: tuple[int, ...] = ()


@dataclass
class Graph:
    """A delegate's computation: nodes in execution order."""

    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def users(self) -> dict[Value, list[Node]]:
        """Value -> the nodes that read it, in order."""
        users: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.inputs:
                users.setdefault(value, []).append(node)
        return users

    def values(self) -> list[Value]:
        """Inputs, outputs, then every other value in the order of its first use."""
        values = dict.fromkeys((*self.inputs, *self.outputs))
        for node in self.nodes:
            values.update(dict.fromkeys((*node.inputs, node.output)))
        return list(values)

    def verify(self) -> None:
        """Check everything that the XNNPACK runtime takes on trust; raises LoweringError naming the node.

        The runtime does not compare byte counts, clamp bounds or (before the first run) shapes.
        """
        defined = set(self.inputs)
        if len(set(self.outputs)) != len(self.outputs) or defined & set(self.outputs):
            raise LoweringError("an output is an input or occurs twice", where="XNNPACK graph")
        for index, node in enumerate(self.nodes):
            where = f"XNNPACK node {index} ({node.operator})"
            for value in node.inputs:
                if value.data is None and value not in defined:
                    raise LoweringError("reads a value before it is computed", where=where)
                _verify_value(value, where)
            _verify_types(node, where)
            expected = node.operator.output_shape(*(value.shape for value in node.inputs))
            if node.output.shape != expected:
                raise LoweringError(f"has output shape {node.output.shape}, computes {expected}", where=where)
            _verify_value(node.output, where)
            _verify_clamp(node, where)
            if node.output in defined or node.output.data is not None:
                raise LoweringError("writes a value that is defined already", where=where)
            defined.add(node.output)
        if not defined.issuperset(self.outputs):
            raise LoweringError("an output is never computed", where="XNNPACK graph")


def _verify_value(value: Value, where: str) -> None:
    if len(value.shape) > MAX_RANK:
        raise LoweringError(f"has a value of rank {len(value.shape)}; XNNPACK allows {MAX_RANK}", where=where)
    if any(smallest(size) < 1 for size in value.shape):
        raise LoweringError(f"has a value without elements, {value.shape}", where=where)
    if value.data is not None:
        have = value.data.numel() * value.data.element_size()
        want = constant_bytes(value.datatype, static(value.shape))
        if have != want:
            raise LoweringError(f"has a constant of {have} bytes where {value.shape} needs {want}", where=where)


def _verify_types(node: Node, where: str) -> None:
    """Numbers of one node have one type, but for constant weights, which may be narrower than what they multiply."""
    first, *others = node.inputs
    kinds = (DataType.FLOAT32, *HALF_TYPES)
    for value in others:
        if first.datatype not in kinds or value.datatype not in kinds or value.datatype is first.datatype:
            continue
        if node.operator.weighted and value is others[0] and value.data is not None:
            continue
        names = f"{first.datatype.name} and {value.datatype.name}"
        raise LoweringError(f"reads {names}: XNNPACK wants one type", where=where)


def static(shape: Shape) -> tuple[int, ...]:
    """A shape whose sizes are known. Raises LoweringError if one changes from call to call."""
    if dynamic_count(shape):
        raise LoweringError(f"sizes {shape} must not change from call to call", where="XNNPACK graph")
    return shape  # type: ignore[return-value]


def _verify_clamp(node: Node, where: str) -> None:
    if node.clamp is None:
        if node.operator.needs_clamp:
            raise LoweringError("has no clamp bounds", where=where)
        return
    if not (node.operator.needs_clamp or node.operator.fuses_clamp):
        raise LoweringError("cannot clamp its result", where=where)
    if not node.clamp.low <= node.clamp.high:
        raise LoweringError(f"clamps to an empty interval {tuple(node.clamp)}", where=where)
