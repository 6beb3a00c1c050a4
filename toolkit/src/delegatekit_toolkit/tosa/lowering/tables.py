"""Functions of single values as look-up tables with more than the eight bits of one table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from delegatekit_toolkit.tosa import Add, DType, Table, Tensor
from delegatekit_toolkit.tosa.types import Array

from .builder import TosaBuilder

#: The integers at which a table of int16 has its entries.
KNOTS: Final = np.arange(-(1 << 15), (1 << 15) + 1, 1 << 7, dtype=np.float64)
#: All integers of int16.
INTEGERS: Final = np.arange(-(1 << 15), 1 << 15, dtype=np.float64)
#: The integers between two entries, and on each side of zero.
_SPACE: Final = 1 << 7
_HALF: Final = 1 << 15
#: The maximum number of corrections of one table.
_CORRECTIONS: Final = 4
#: The largest entry, and the steps of the result between two integers of an entry.
_UNIT: Final = (1 << 15) - 1
_FRACTION: Final = 1 << 7


@dataclass(frozen=True)
class Lines:
    """Real values at `KNOTS`, with straight lines in between, for int16.

    The unit of the entries is never `avoided`: a compiler would fuse the table with a RESCALE by 2^-7 to int16, and
    what devices do then is undocumented.
    """

    values: Array
    avoided: float = 0.0

    @property
    def unit(self) -> float:
        """The value of one unit of an entry."""
        values = self.values
        unit = max(float(np.abs(values).max()), float(np.abs(np.diff(values)).max())) / _UNIT or 2 * self.avoided or 1.0
        return unit * (1 + 2.0**-12) if math.isclose(unit, self.avoided, rel_tol=2.0**-20) else unit

    @property
    def step(self) -> float:
        """The value of one unit of the result: entries have fractional bits."""
        return self.unit / _FRACTION

    @property
    def _entries(self) -> Array:
        entries: Array = np.rint(self.values / self.unit)
        return entries

    def of(self, b: TosaBuilder, tensor: Tensor, name: str = "between") -> Tensor:
        """The interpolated values for a tensor of int16, as int32 in steps of `step`."""
        operand = b.graph.constant(self._entries, DType.INT16, f"{b.name}.table")
        return b.emit(Table(), (tensor, operand), tensor.shape, DType.INT32, name)

    def corrections(
        self, exact: Array, bounds: tuple[float, float], tolerance: float
    ) -> tuple[list[tuple[int, int, Lines]], float]:
        """Corrections where the lines differ from `exact` at `INTEGERS` by more than `tolerance`, and the remaining
        maximum error.

        Each is a set of lines through the differences around an integer, with a multiple of the density: (x - place) *
        factor is their int16, and they end at zero. Both are chosen so that all knots of the lines before are among
        theirs. Values outside `bounds` are no error: the result is clamped to them.
        """
        made: list[tuple[int, int, Lines]] = []
        found = np.interp(INTEGERS, KNOTS, self._entries * self.unit)
        while True:
            away = np.abs(np.clip(found, *bounds) - exact)
            wrong = np.flatnonzero(away > tolerance)
            if not len(wrong) or len(made) == _CORRECTIONS:
                return made, float(away.max())
            low, high = INTEGERS[wrong[0]], INTEGERS[wrong[-1]]
            place = round((low + high) / 2 / _SPACE) * _SPACE
            reach = max(high - place, place - low) + _SPACE
            factor = int(2 ** min(math.floor(math.log2(_HALF / reach)), math.log2(_SPACE)))
            if factor < 2:  # same density as before: correct the first part now, and the rest next
                factor = 2
                place = int(INTEGERS[wrong[0]] + _HALF // factor) // _SPACE * _SPACE
            points = place + KNOTS / factor
            missing = np.interp(points, INTEGERS, exact - found, left=0.0, right=0.0)
            missing[0] = missing[-1] = 0.0
            if not missing.any():
                return made, float(away.max())
            lines = Lines(missing, self.avoided)
            integers = np.clip((INTEGERS - place) * factor, -_HALF, _HALF - 1)
            found = found + np.interp(integers, KNOTS, lines._entries * lines.unit)
            made.append((place, factor, lines))


def looked_up(b: TosaBuilder, tensor: Tensor, values: Array, name: str) -> Tensor:
    """Integers of up to 16 bits (-32768 to 65535) for the 256 values of int8, as int32.

    Tables return eight bits: one holds the higher ones, another the lower.
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
        # Half of the offset is a zero point: -128 represents the smallest.
        zero = 0 if offset and scale > 1 else -128
        parts.append(b.rescaled(found, [float(scale)], zero_point=zero, name=name))
    return b.emit(Add(), parts, tensor.shape, DType.INT32, name)
