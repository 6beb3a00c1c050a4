"""Element types, by QNN's names."""

from __future__ import annotations

from enum import Enum
from typing import Final

import numpy as np
import torch


class DataType(Enum):
    """The type of a tensor's elements; the value follows QNN_DATATYPE_ in QNN's names."""

    FLOAT32 = "FLOAT_32"
    FLOAT16 = "FLOAT_16"
    INT32 = "INT_32"
    INT64 = "INT_64"
    UINT32 = "UINT_32"
    BOOL = "BOOL_8"
    #: Quantized integers: unsigned for activations, signed for weights and biases.
    UFIXED8 = "UFIXED_POINT_8"
    UFIXED16 = "UFIXED_POINT_16"
    SFIXED8 = "SFIXED_POINT_8"
    SFIXED16 = "SFIXED_POINT_16"
    SFIXED32 = "SFIXED_POINT_32"

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The array type of the same bytes."""
        return np.dtype(_NUMPY[self])

    @property
    def is_fixed_point(self) -> bool:
        """True if the elements are integers with a scale."""
        return "FIXED" in self.value

    @property
    def is_float(self) -> bool:
        """True if the elements are floating-point numbers."""
        return self.value.startswith("FLOAT")


_NUMPY: Final = {
    DataType.FLOAT32: "<f4",
    DataType.FLOAT16: "<f2",
    DataType.INT32: "<i4",
    DataType.INT64: "<i8",
    DataType.UINT32: "<u4",
    DataType.BOOL: "u1",
    DataType.UFIXED8: "u1",
    DataType.UFIXED16: "<u2",
    DataType.SFIXED8: "i1",
    DataType.SFIXED16: "<i2",
    DataType.SFIXED32: "<i4",
}

#: torch's types of the delegate's inputs and outputs.
OUTER: Final = {
    torch.float32: DataType.FLOAT32,
    torch.int32: DataType.INT32,
    torch.int64: DataType.INT64,
    torch.bool: DataType.BOOL,
}

#: torch's types in computations: integers have 32 bits.
INNER: Final = OUTER | {torch.int64: DataType.INT32}

#: The maximum number of axes of operators.
MAX_RANK: Final = 5

#: The largest float16 number.
LARGEST: Final = 65504.0


def half(number: float) -> float:
    """A number as the processor represents it: clamped to the range of float16.

    >>> half(float("-inf"))
    -65504.0
    """
    return float(min(max(number, -LARGEST), LARGEST))
