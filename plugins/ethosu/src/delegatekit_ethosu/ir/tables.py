"""Functions of single values as look-up tables with more than the eight bits that one table gives."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from delegatekit_toolkit.tosa import Add, DType, Table, Tensor
from delegatekit_toolkit.tosa.types import Array

from .builder import TosaBuilder

#: The integers at which a table of int16 has its entries.
KNOTS: Final = np.arange(-(1 << 15), (1 << 15) + 1, 1 << 7, dtype=np.float64)
#: The largest entry, and the steps between two integers of an entry in the result.
_UNIT: Final = (1 << 15) - 1
_FRACTION: Final = 1 << 7


def interpolated(
    b: TosaBuilder, tensor: Tensor, values: Array, avoided: float = 0.0, name: str = "between"
) -> tuple[Tensor, float]:
    """Real values at `KNOTS`, with straight lines in between, for int16: as int32, and what one of these stands for.

    The unit of the entries is never `avoided`: Vela would join the table and a RESCALE by 2^-7 to int16, and what the
    NPU makes of that is not documented.
    """
    unit = max(float(np.abs(values).max()), float(np.abs(np.diff(values)).max())) / _UNIT
    if math.isclose(unit, avoided, rel_tol=2.0**-20):
        unit *= 1 + 2.0**-12
    operand = b.graph.constant(np.rint(values / unit), DType.INT16, f"{b.name}.table")
    return b.emit(Table(), (tensor, operand), tensor.shape, DType.INT32, name), unit / _FRACTION


def looked_up(b: TosaBuilder, tensor: Tensor, values: Array, name: str) -> Tensor:
    """Integers of up to 16 bits (-32768 to 65535) for the 256 values of int8, as int32.

    Tables give eight bits: one has the higher ones, another the lower.
    """
    points = np.rint(values).astype(np.int64)
    low, high = int(points.min()), int(points.max())
    offset = 0 if low >= 0 else 1 << 15
    bits = 16 if offset else max(9, high.bit_length())
    points = points + offset
    step = bits - 8
    parts = []
    for part, scale in ((points >> step, 1 << step), (points & (1 << step) - 1, 1)):
        found = b.tabled(tensor, part - 128, name, f"{name}.table")
        # Half of the offset is a zero point: -128 stands for the smallest.
        zero = 0 if offset and scale > 1 else -128
        parts.append(b.rescaled(found, [float(scale)], zero_point=zero, name=name))
    return b.emit(Add(), parts, tensor.shape, DType.INT32, name)
