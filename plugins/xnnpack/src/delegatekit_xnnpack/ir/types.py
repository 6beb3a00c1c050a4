"""Types of the values of an XNNPACK graph: shapes, element types, quantization, bounds of a clamp."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from delegatekit_api import LoweringError
from delegatekit_toolkit.sizes import Size, dynamic_count

if TYPE_CHECKING:
    import torch

#: XNN_MAX_TENSOR_DIMS of XNNPACK.
MAX_RANK = 6
#: The limit of a bias, in steps of the sums: the sums must not leave 32 bits either.
LARGEST_BIAS = 2**30

Shape: TypeAlias = tuple[Size, ...]


def static(shape: Shape) -> tuple[int, ...]:
    """A shape whose sizes are known. Raises LoweringError if one changes from call to call."""
    if dynamic_count(shape):
        raise LoweringError(f"sizes {shape} must not change from call to call", where="XNNPACK graph")
    return shape  # type: ignore[return-value]


class DataType(IntEnum):
    """Element types of XNNPACK values, with the blob's numbers; those unused by delegates here are left out."""

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
    INT32 = 12
    BFLOAT16 = 14


#: Floating-point types of 16 bits.
HALF_TYPES = (DataType.FLOAT16, DataType.BFLOAT16)

#: Bits of one element; types that are never in memory that we write are left out.
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
    """The interval of a clamp."""

    low: float
    high: float

    def then(self, after: Bounds) -> Bounds:
        """One clamp equivalent to this one followed by `after`."""
        low, high = (min(max(bound, after.low), after.high) for bound in self)
        return Bounds(low, high)


@dataclass(frozen=True)
class PerTensorQuantization:
    """real = scale * (integer - zero_point), one pair for the whole value."""

    scale: float
    zero_point: int = 0


@dataclass(frozen=True)
class PerRowQuantization:
    """Scales and zero points that XNNPACK computes in every call, one pair for all elements of the last `axes` axes."""

    axes: int


class _Scales:
    """Equality of quantizations with several scales: the same memory, viewed in the same way."""

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


Quantization: TypeAlias = PerTensorQuantization | PerRowQuantization | PerChannelQuantization | PerGroupQuantization


@dataclass(frozen=True)
class Format:
    """The storage format of a value's elements, and their meaning."""

    datatype: DataType = DataType.FLOAT32
    quantization: Quantization | None = None
