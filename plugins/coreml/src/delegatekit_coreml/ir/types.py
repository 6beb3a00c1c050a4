"""The element types of MIL, with their codes in the model's file and in the file of weights."""

from __future__ import annotations

from enum import Enum
from typing import Final

import torch

from delegatekit_api import FormatError


class DataType(Enum):
    """A type by its name in MIL. The value is its code in the model's file (`DataType` of MIL.proto)."""

    BOOL = 1
    STRING = 2
    FLOAT16 = 10
    FLOAT32 = 11
    INT8 = 21
    INT16 = 22
    INT32 = 23
    INT4 = 25
    UINT8 = 31
    UINT16 = 32
    UINT32 = 33
    UINT4 = 35
    UINT2 = 36
    UINT1 = 37
    UINT6 = 38
    UINT3 = 39

    @property
    def mil(self) -> str:
        """The name in MIL: "fp16"."""
        return self.name.lower().replace("float", "fp")

    @property
    def bits(self) -> int:
        """Bits of an element in a file; booleans take a byte."""
        return 8 if self is DataType.BOOL else int("".join(filter(str.isdigit, self.name)) or 0)

    @property
    def is_float(self) -> bool:
        """True for floating-point types."""
        return self in (DataType.FLOAT16, DataType.FLOAT32)

    @property
    def is_signed(self) -> bool:
        """True for signed types."""
        return self.is_float or self in (DataType.INT4, DataType.INT8, DataType.INT16, DataType.INT32)

    @property
    def torch(self) -> torch.dtype:
        """The narrowest type of PyTorch that represents all its numbers. Raises FormatError for texts."""
        if self is DataType.STRING:
            raise FormatError("has a text where a tensor is", where="Core ML program")
        return _TORCH[self]


_TORCH: Final = {
    DataType.BOOL: torch.bool,
    DataType.FLOAT16: torch.float16,
    DataType.FLOAT32: torch.float32,
    DataType.INT8: torch.int8,
    DataType.INT16: torch.int16,
    DataType.INT32: torch.int32,
    DataType.UINT8: torch.uint8,
    DataType.UINT16: torch.int32,
    DataType.UINT32: torch.int64,
    DataType.INT4: torch.int8,
    **dict.fromkeys((DataType.UINT1, DataType.UINT2, DataType.UINT3, DataType.UINT4, DataType.UINT6), torch.uint8),
}

#: Name in MIL -> type.
BY_NAME: Final = {kind.mil: kind for kind in DataType}

#: Code of a record in the file of weights -> type.
WEIGHT_CODES: Final = {
    1: DataType.FLOAT16,
    2: DataType.FLOAT32,
    3: DataType.UINT8,
    4: DataType.INT8,
    6: DataType.INT16,
    7: DataType.UINT16,
    8: DataType.INT4,
    9: DataType.UINT1,
    10: DataType.UINT2,
    11: DataType.UINT4,
    12: DataType.UINT3,
    13: DataType.UINT6,
    14: DataType.INT32,
    15: DataType.UINT32,
}

#: Code of an input's or output's elements in the model's description (`ArrayFeatureType`) -> type.
FEATURE_CODES: Final = {
    0x10010: DataType.FLOAT16,
    0x10020: DataType.FLOAT32,
    0x20008: DataType.INT8,
    0x20020: DataType.INT32,
}

#: Tensors have at most this many axes.
MOST_AXES: Final = 5
