"""Element types and modes of TOSA, numbered as in its files, and the layout of elements in NumPy arrays and files."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class DType(IntEnum):
    """Element types of TOSA 1.0. SHAPE is a list of sizes as an operand."""

    BOOL = 1
    INT4 = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    INT48 = 6
    FP32 = 7
    FP16 = 8
    BF16 = 9
    SHAPE = 10


class Rounding(IntEnum):
    """Rounding mode of RESCALE: half up, inexactly, or half away from zero after a first rounding."""

    SINGLE = 1
    INEXACT = 2
    DOUBLE = 3


class NanMode(IntEnum):
    """Treatment of NaN."""

    PROPAGATE = 1
    IGNORE = 2


class ResizeMode(IntEnum):
    """Interpolation mode of RESIZE."""

    NEAREST = 1
    BILINEAR = 2


#: Element type -> the type of the arrays that hold it. int4 and int48 have a wider one; bfloat16 is stored as its bits.
NUMPY_TYPES: Final[dict[DType, np.dtype[Any]]] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.INT4: np.dtype(np.int8),
    DType.INT8: np.dtype(np.int8),
    DType.INT16: np.dtype("<i2"),
    DType.INT32: np.dtype("<i4"),
    DType.INT48: np.dtype("<i8"),
    DType.FP32: np.dtype("<f4"),
    DType.FP16: np.dtype("<f2"),
    DType.BF16: np.dtype("<u2"),
    DType.SHAPE: np.dtype("<i8"),
}
#: Smallest and largest value of each integer type.
INTEGER_RANGES: Final[dict[DType, tuple[int, int]]] = {
    DType.INT4: (-7, 7),
    DType.INT8: (-(1 << 7), (1 << 7) - 1),
    DType.INT16: (-(1 << 15), (1 << 15) - 1),
    DType.INT32: (-(1 << 31), (1 << 31) - 1),
    DType.INT48: (-(1 << 47), (1 << 47) - 1),
}


def pack(array: Array, dtype: DType) -> bytes:
    """The elements in file format: little-endian, int4 two to a byte (the first one low), int48 in six bytes."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype == DType.INT4:
        nibbles = np.zeros(flat.size + flat.size % 2, np.uint8)
        nibbles[: flat.size] = flat.view(np.uint8) & 0xF
        return (nibbles[::2] | nibbles[1::2] << 4).astype(np.uint8).tobytes()
    if dtype == DType.INT48:
        return flat.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :6].tobytes()
    return flat.tobytes()


def packed_size(count: int, dtype: DType) -> int:
    """Bytes that `count` elements take in a file."""
    if dtype == DType.INT4:
        return (count + 1) // 2
    return count * (6 if dtype == DType.INT48 else NUMPY_TYPES[dtype].itemsize)


def unpack(data: bytes, count: int, dtype: DType) -> Array:
    """The inverse of `pack`, as a flat array of `count` elements; `data` must have `packed_size(count, dtype)`
    bytes."""
    if dtype == DType.INT4:
        packed = np.frombuffer(data, np.uint8)
        nibbles = np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(-1)[:count].astype(np.int8)
        signed: Array = np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.int8)
        return signed
    if dtype == DType.INT48:
        wide = np.zeros((count, 8), np.uint8)
        wide[:, :6] = np.frombuffer(data, np.uint8).reshape(count, 6)
        high: Array = wide.view("<i8").reshape(-1) << 16
        numbers: Array = high >> 16
        return numbers
    if dtype == DType.BOOL:
        truth: Array = np.frombuffer(data, np.uint8) != 0
        return truth
    return np.frombuffer(data, NUMPY_TYPES[dtype])
