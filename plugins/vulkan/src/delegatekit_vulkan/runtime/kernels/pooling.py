"""Poolings: maxima and averages of windows over two axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...ir.types import DataType
from ...shaders.numbers import Pool
from ...targets import MOST_ROUNDS, rounds
from ..calls import Kernel, Reader
from ..memory import Value
from ..tape import Tape

#: (height, width)
Pair: TypeAlias = "tuple[int, int]"

#: Larger settings are meaningless, and positions would not fit 32 bits.
_MOST: Final = 1 << 24
#: Numbers beyond the device's signed integers.
_INT32: Final = 1 << 31


@dataclass(frozen=True)
class _Windows:
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    round_up: bool

    def result(self, size: Sequence[int]) -> Pair:
        """Height and width of the result."""
        height, width = (self._extent(axis, size[axis]) for axis in (0, 1))
        return height, width

    def _extent(self, axis: int, size: int) -> int:
        stride, padding = self.stride[axis], self.padding[axis]
        free = size + 2 * padding - self.dilation[axis] * (self.kernel[axis] - 1) - 1
        count = (free + (stride - 1 if self.round_up else 0)) // stride + 1
        # The last window begins in the input or in the padding before it.
        return count - 1 if self.round_up and (count - 1) * stride >= size + padding else count


def _average(tape: Tape, call: Reader) -> None:
    windows = _windows(call, dilation=(1, 1), round_up=call.truth(4))
    divisor = 0 if call.is_none(6) else call.integer(6)
    if not call.is_none(6) and not 0 < abs(divisor) < _INT32:
        raise call.error(f"divides by {divisor}")
    x, target = _tensors(tape, call, windows)
    kind = Pool.PADDED_AVERAGE if call.truth(5) else Pool.AVERAGE
    _pool(tape, kind, windows, x, target, target, divisor)


def _maximum(tape: Tape, call: Reader) -> None:
    """Two results, the second of which are positions; or the maxima alone."""
    windows = _windows(call, dilation=_pair(call, 4), round_up=call.truth(5))
    x, target = _tensors(tape, call, windows)
    if len(call.results) == 1:
        _pool(tape, Pool.MAXIMUM, windows, x, target, target)
        return
    positions = tape.result(call.results[1], target.shape)
    if positions.datatype is not DataType.INT32:
        raise call.error(f"has positions of the type {positions.datatype.name}")
    _pool(tape, Pool.POSITION, windows, x, positions, target)


def _pool(
    tape: Tape, kind: Pool, windows: _Windows, x: Value, positions: Value, target: Value, divisor: int = 0
) -> None:
    sizes = (*x.shape[-2:], *target.shape[-2:])
    settings = (*windows.kernel, *windows.stride, *windows.padding, *windows.dilation)
    push = (target.count, divisor, *sizes, *settings)
    buffers = (x, positions, target)
    tape.dispatch("pool", buffers, push, (target.is_half, kind), items=target.count, written=2)


def _tensors(tape: Tape, call: Reader, windows: _Windows) -> tuple[Value, Value]:
    """The input, and the first result."""
    x = call.tensor(0, 3, 4)
    height, width = windows.result(x.shape[-2:])
    if min(*x.shape[-2:], height, width) < 1 or max(x.shape[-2:]) >= _MOST:
        raise call.error(f"has an input of the size {x.shape}, and a result of the size {(height, width)}")
    if math.prod(x.shape) >= 1 << 31:
        raise call.error(f"has an input of {math.prod(x.shape)} elements")
    if rounds(*map(min, windows.kernel, x.shape[-2:])) > MOST_ROUNDS:
        raise call.error(f"has windows of {windows.kernel} elements")
    target = tape.result(call.results[0], (*x.shape[:-2], height, width))
    if not (x.is_float and target.is_float):
        raise call.error("computes with integers")
    return x, target


def _windows(call: Reader, *, dilation: Pair, round_up: bool) -> _Windows:
    kernel = _pair(call, 1)
    windows = _Windows(kernel, _pair(call, 2, kernel), _pair(call, 3), dilation, round_up)
    if min(*kernel, *windows.stride, *dilation) < 1 or max(*kernel, *windows.stride, *dilation) >= _MOST:
        raise call.error(f"has windows of sizes that cannot be: {windows}")
    for size, step, padding in zip(kernel, dilation, windows.padding, strict=True):
        if not 0 <= 2 * padding <= (size - 1) * step + 1 or size * step >= _MOST:
            raise call.error(f"has windows that lie outside: {windows}")
    return windows


def _pair(call: Reader, position: int, default: Pair | None = None) -> Pair:
    """A setting of both axes; PyTorch accepts none, or an empty one."""
    if default is not None and (call.is_none(position) or call.raw(position) == ()):
        return default
    height, width = call.integers(position, 2)
    return height, width


KERNELS: Final[dict[str, Kernel]] = {
    "aten.avg_pool2d.default": _average,
    "aten.max_pool2d.default": _maximum,
    "aten.max_pool2d_with_indices.default": _maximum,
}
