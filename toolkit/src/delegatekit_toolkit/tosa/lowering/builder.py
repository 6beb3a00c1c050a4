"""Builds TOSA graphs of quantized tensors: rescaling, bounds, tables, and everything of `Moves` and `Emission`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from delegatekit_toolkit.tosa import Clamp, DType, Maximum, Minimum, Rescale, Table, Tensor
from delegatekit_toolkit.tosa.numerics import multipliers_and_shifts, rescale
from delegatekit_toolkit.tosa.types import INTEGER_RANGES, Array

from .device import Device
from .moves import Moves
from .values import Result, Scale
from .ways import CountCycles, Ways

#: The number of integers of each type.
_SPANS: Final = {DType.INT8: 1 << 8, DType.INT16: 1 << 16}
#: TOSA defines RESCALE for results up to this size, before saturation.
_RESCALED: Final = 1 << 29


class TosaBuilder(Moves):
    """Builds a TOSA graph of quantized tensors for a device.

    `cycles` gives the cycles that a graph would take, None if the device cannot run it; without it the first of
    several ways is used.
    """

    def __init__(self, name: str, device: Device, cycles: CountCycles | None = None, ways: Ways | None = None) -> None:
        super().__init__(name, ways or Ways(cycles, self.trial))
        self.device: Final = device
        self._largest: Final[dict[str, float | Array]] = {}

    def trial(self, ways: Ways) -> TosaBuilder:
        """An empty builder for a graph of its own, which shares the choices made so far."""
        return TosaBuilder("trial", self.device, ways=ways)

    def rescaled(
        self,
        tensor: Tensor,
        scales: Sequence[float],
        *,
        zero_point: int = 0,
        output_zero: int = 0,
        dtype: DType = DType.INT32,
        name: str = "",
    ) -> Tensor:
        """(integer - zero_point) * scale + output_zero; one scale, or one for each index of the last axis.

        Multipliers have 31 bits, for int48 only 15. A constant is computed immediately.
        """
        if len(set(scales)) == 1:
            scales = scales[:1]
        if tensor.dtype in _SPANS and dtype in _SPANS and scales[0] * _SPANS[tensor.dtype] >= _RESCALED:
            tensor, scales = self._near_zero(tensor, scales[0], zero_point, dtype)
        wide = tensor.dtype == DType.INT48
        multipliers, shifts = multipliers_and_shifts(scales, bits=16 if wide else 32)
        if tensor.data is not None:
            data = rescale(
                tensor.data, multipliers, shifts, input_zero=zero_point, output_zero=output_zero, dtype=dtype
            )
            return self.graph.constant(data, dtype, f"{tensor.name}.rescaled")
        operands = (
            self.graph.constant(multipliers, DType.INT16 if wide else DType.INT32),
            self.graph.constant(shifts, DType.INT8),
            self.number(zero_point, tensor.dtype),
            self.number(output_zero, dtype),
        )
        operator = Rescale(scale32=not wide, per_channel=len(scales) > 1)
        return self.emit(operator, (tensor, *operands), tensor.shape, dtype, name)

    def _near_zero(self, tensor: Tensor, scale: float, zero: int, dtype: DType) -> tuple[Tensor, list[float]]:
        """For a scale that is too large for TOSA: the tensor clamped near its zero point, and an equivalent scale."""
        scale = min(scale, float(2 * _SPANS[dtype]))
        reach = math.ceil(2 * _SPANS[dtype] / scale)
        lowest, highest = INTEGER_RANGES[tensor.dtype]
        bounds = Clamp(max(lowest, zero - reach), min(highest, zero + reach))
        return self.emit(bounds, (tensor,), tensor.shape, tensor.dtype, "near"), [scale]

    def bound(self, sums: Tensor, largest: float | Array) -> Tensor:
        """Record the largest magnitude of an int32 tensor's numbers, for each channel or for all."""
        self._largest[sums.name] = largest
        return sums

    def stored_as(self, sums: Tensor, scales: Sequence[float], result: Result) -> Tensor:
        """int32 or int48 sums, in steps of `scales`, as the integers of a result.

        If int32 sums can leave the range for which TOSA defines RESCALE, values that saturate in any case are moved
        closer.
        """
        target, largest = result.scale, self._largest.get(sums.name)
        steps = [scale / target.scale for scale in scales]
        if largest is not None and sums.dtype == DType.INT32 and (np.array(steps) * largest >= _RESCALED).any():
            span = 2 * _SPANS[target.dtype]
            steps = [min(step, float(span)) for step in steps]
            limits = np.ceil(span / np.array(steps)).reshape(*[1] * (len(sums.shape) - 1), -1)
            for operator, bounds in ((Maximum(), -limits), (Minimum(), limits)):
                operands = sums, self.graph.constant(np.minimum(np.maximum(bounds, -_RESCALED), _RESCALED), DType.INT32)
                sums = self.emit(operator, operands, sums.shape, DType.INT32, "near")
        made = self.rescaled(sums, steps, output_zero=target.zero_point, dtype=target.dtype)
        return self.clamped(made, result)

    def clamped(self, tensor: Tensor, result: Result) -> Tensor:
        """Clamp to the bounds of a result, if saturation does not suffice.

        The clamp is placed before operators that only move values: a compiler in use fuses a clamp with the operation
        before these, in the wrong shape.
        """
        bounds = result.bounds
        if bounds is None or bounds == INTEGER_RANGES[result.scale.dtype]:
            return tensor
        return self.before_moves(tensor, lambda x: self.emit(Clamp(*bounds), (x,), x.shape, x.dtype))

    def requantized(self, tensor: Tensor, before: Scale, result: Result) -> Tensor:
        """The same numbers as the integers of a result; the tensor itself if these are the same.

        Like bounds it is placed before operators that only move values.
        """
        if before == result.scale:
            return self.clamped(tensor, result)
        step, after = before.scale / result.scale.scale, result.scale

        def change(x: Tensor) -> Tensor:
            made = self.rescaled(
                x, [step], zero_point=before.zero_point, output_zero=after.zero_point, dtype=after.dtype
            )
            return self.clamped(made, result)

        return self.before_moves(tensor, change)

    def tabled(self, tensor: Tensor, entries: Sequence[int] | Array, name: str = "", table: str = "table") -> Tensor:
        """Each int8 value replaced by one of 256 entries.

        It is placed before operators that only move values: a compiler may leave a transpose's table
        unallocated.
        """
        operand = self.graph.constant(entries, DType.INT8, f"{self.name}.{table}")

        def look_up(x: Tensor) -> Tensor:
            return self.emit(Table(), (x, operand), x.shape, DType.INT8, name)

        return self.before_moves(tensor, look_up)
