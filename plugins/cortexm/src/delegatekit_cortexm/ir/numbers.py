"""The fixed-point numbers of CMSIS-NN."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from delegatekit_api import LoweringError
from delegatekit_api.schemes import Quantization

#: Operands of a sum are multiplied by two to the power of this before they are scaled.
SUM_SHIFT: Final = 20
#: Bits of the whole part of a softmax's input, after its scale.
_SOFTMAX_BITS: Final = 5


def fixed_point(factor: float) -> tuple[int, int]:
    """A factor of 0 or more as a multiplier of 31 bits and a power of two: multiplier / 2**31 * 2**shift.

    >>> fixed_point(0.75), fixed_point(3.0)
    ((1610612736, 0), (1610612736, 2))
    """
    if factor == 0:
        return 0, 0
    fraction, shift = math.frexp(factor)
    multiplier = round(fraction * 2**31)
    return (multiplier // 2, shift + 1) if multiplier == 2**31 else (multiplier, shift)


def softmax_factor(scale: float) -> tuple[int, int, int]:
    """Multiplier, shift, and the difference from the largest number from which on an exponential is 0."""
    multiplier, shift = fixed_point(min(scale * 2.0 ** (31 - _SOFTMAX_BITS), 2.0**31 - 1))
    return multiplier, shift, -math.floor((2**_SOFTMAX_BITS - 1) * 2.0 ** (31 - _SOFTMAX_BITS - shift))


@dataclass(frozen=True)
class Scale:
    """The scale and zero point of a tensor of int8, and the range that its integers are kept in."""

    scale: float
    zero_point: int
    low: int = -128
    high: int = 127

    @classmethod
    def of(cls, found: Quantization | None, where: str) -> Scale:
        """The scale of a static quantize or dequantize of whole tensors. Raises LoweringError for others."""
        if found is None or not found.is_per_tensor:
            raise LoweringError("is not quantized with one scale that is known", where=where)
        return cls(float(found.scale), int(found.zero_point), int(found.minimum), int(found.maximum))

    def integer(self, number: float) -> int:
        """The integer that stands for a number, within the range."""
        scaled = number / self.scale
        if math.isinf(scaled):
            return self.high if scaled > 0 else self.low
        return min(self.high, max(self.low, round(scaled) + self.zero_point))

    def like(self, other: Scale) -> bool:
        """True if the same integers stand for the same numbers."""
        return (self.scale, self.zero_point) == (other.scale, other.zero_point)
