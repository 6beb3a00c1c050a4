"""Element types of tensors, and their storage and layout on a device.

Numbers are those of the blob (ExecuTorch 1.5's Vulkan delegate).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import torch


class DataType(IntEnum):
    """The type of a tensor's elements on the device."""

    BOOL = 0
    UINT8 = 1
    INT8 = 2
    INT32 = 3
    FLOAT16 = 4
    FLOAT32 = 5
    FLOAT64 = 6
    INT64 = 7

    @property
    def is_float(self) -> bool:
        """True if the elements are floating-point numbers."""
        return self in (DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64)

    @property
    def torch(self) -> torch.dtype:
        """PyTorch's type of the same name."""
        return _TORCH[self]

    @property
    def bytes(self) -> int:
        """Bytes of an element."""
        return _TORCH[self].itemsize


_TORCH: Final = {
    DataType.BOOL: torch.bool,
    DataType.UINT8: torch.uint8,
    DataType.INT8: torch.int8,
    DataType.INT32: torch.int32,
    DataType.FLOAT16: torch.float16,
    DataType.FLOAT32: torch.float32,
    DataType.FLOAT64: torch.float64,
    DataType.INT64: torch.int64,
}

#: PyTorch's type -> the blob's.
DATA_TYPES: Final = {dtype: datatype for datatype, dtype in _TORCH.items()}

#: Types that the host narrows while it copies a tensor to or from the device.
NARROWED: Final = {DataType.INT64: DataType.INT32, DataType.FLOAT64: DataType.FLOAT32}


class Storage(IntEnum):
    """The storage of a tensor on a device."""

    BUFFER = 0
    TEXTURE_3D = 1
    TEXTURE_2D = 2
    #: The runtime decides.
    DEFAULT = 255


class Layout(IntEnum):
    """The axis along which four elements are packed: in a texel, or in a word of packed integers."""

    WIDTH_PACKED = 0
    HEIGHT_PACKED = 1
    CHANNELS_PACKED = 2
    INT8_4W4C = 3
    INT8_4H4W = 4
    INT8_4W = 5
    INT8_4C = 6
    INT8_4C1W = 8
    INT8_CONV2D = 9
    #: The runtime decides.
    DEFAULT = 255


def device_type(dtype: torch.dtype, *, half: bool) -> DataType:
    """The type on the device for one of PyTorch's; with `half`, float32 is stored as float16."""
    datatype = DATA_TYPES[dtype]
    datatype = NARROWED.get(datatype, datatype)
    return DataType.FLOAT16 if half and datatype is DataType.FLOAT32 else datatype


#: Maximum axes of a tensor in a texture, and in a buffer.
TEXTURE_RANK: Final = 4
BUFFER_RANK: Final = 8
