"""The file of weights in a package: a header, and for each constant a record with its type and offset."""

from __future__ import annotations

import math
import struct
from typing import Final

import numpy as np
import torch

from delegatekit_api import FormatError
from delegatekit_toolkit.content import shown
from delegatekit_toolkit.dataflow import section

from ..ir.program import TensorType
from ..ir.types import WEIGHT_CODES, DataType

#: Count of records and version; the rest of its 64 bytes is zero.
_HEADER: Final = struct.Struct("<II")
_VERSION: Final = 2
#: Mark, type, bytes of the data, their offset.
_RECORD: Final = struct.Struct("<IIQQ")
_MARK: Final = 0xDEADBEEF
_ALIGNMENT: Final = 64
_WHERE: Final = "weights"


class WeightFile:
    """Constants by the offsets of their records. Tensors are views of the file's memory, which must not be written."""

    def __init__(self, data: memoryview) -> None:
        """Raises FormatError for an invalid header."""
        self._data = data
        if len(data):
            if len(data) < _ALIGNMENT:
                raise FormatError(f"{len(data)} bytes are too few for the header", where=_WHERE)
            version = _HEADER.unpack_from(data)[1]
            if version != _VERSION:
                raise FormatError(f"has version {version}: {_VERSION} is known", where=_WHERE)

    def read(self, offset: int, kind: TensorType, where: str) -> torch.Tensor:
        """The constant with its record at an offset. Raises FormatError if it is not of this type and size."""
        record = section(self._data, offset, _ALIGNMENT, f"{where}, record of its weights")
        mark, code, size, start = _RECORD.unpack_from(record)
        if mark != _MARK or offset % _ALIGNMENT:
            raise FormatError(f"no constant begins at {offset} of the weights", where=where)
        if WEIGHT_CODES.get(code) is not kind.datatype:
            raise FormatError(f"its weights have type {code}, not {kind.datatype.mil}", where=where)
        shape = known_shape(kind, where)
        wanted = stored_bytes(kind.datatype, math.prod(shape))
        if size != wanted:
            raise FormatError(f"its weights have {size} bytes instead of {wanted}", where=where)
        return unpacked(section(self._data, start, size, f"{where}, weights"), kind.datatype, shape)


def bytes_by_type(data: memoryview) -> dict[str, int]:
    """Bytes of the constants of each type in a file that was just written, by MIL's name of the type."""
    found: dict[str, int] = {}
    offset, count = _ALIGNMENT, _HEADER.unpack_from(data)[0] if len(data) else 0
    for _ in range(count):
        _, code, size, start = _RECORD.unpack_from(data, offset)
        name = WEIGHT_CODES[code].mil
        found[name] = found.get(name, 0) + size
        offset = -(-(start + size) // _ALIGNMENT) * _ALIGNMENT
    return found


def known_shape(kind: TensorType, where: str) -> tuple[int, ...]:
    """The sizes of a constant, which do not change. Raises FormatError if they do."""
    if None in kind.shape:
        raise FormatError(f"is a constant of unknown size, {kind}", where=where)
    return tuple(size for size in kind.shape if size is not None)


def stored_bytes(datatype: DataType, elements: int) -> int:
    """The number of bytes of elements; those of less than 8 bits are packed.

    >>> stored_bytes(DataType.INT4, 5)
    3
    """
    return -(-elements * datatype.bits // 8)


def unpacked(data: memoryview, datatype: DataType, shape: tuple[int, ...]) -> torch.Tensor:
    """The elements in `stored_bytes` bytes: a view, or unpacked if they take less than 8 bits.

    >>> unpacked(memoryview(bytes([0x7F, 0x08])), DataType.INT4, (3,))
    tensor([-1,  7, -8], dtype=torch.int8)
    """
    if datatype.bits < 8:
        return _unpacked_bits(data, datatype, shape)
    if datatype in (DataType.UINT16, DataType.UINT32):
        numbers = np.frombuffer(data, np.dtype(f"<u{datatype.bits // 8}"))
        return torch.from_numpy(numbers.astype(np.int64)).to(datatype.torch).reshape(shape)
    return shown(data, datatype.torch, shape)


def _unpacked_bits(data: memoryview, datatype: DataType, shape: tuple[int, ...]) -> torch.Tensor:
    """Numbers of a stream of bits, the first in the lowest."""
    count, bits = int(np.prod(shape, dtype=np.int64)), datatype.bits
    stream = np.unpackbits(np.frombuffer(data, np.uint8), count=count * bits, bitorder="little")
    numbers = np.packbits(stream.reshape(count, bits), axis=1, bitorder="little").reshape(-1)
    if datatype.is_signed:
        sign = 1 << (bits - 1)
        numbers = ((numbers ^ sign).astype(np.int16) - sign).astype(np.int8)
    return torch.from_numpy(numbers).reshape(shape)
