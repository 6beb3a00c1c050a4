"""The windows of a convolution: its settings, the size of its result, and the limits of the shaders."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

from ...targets import MOST_ROUNDS, rounds
from ..calls import Reader
from ..memory import Value

#: (height, width)
Pair: TypeAlias = "tuple[int, int]"

#: Channels, and pixels, that an invocation of most of the shaders computes.
BLOCK: Final = 8
#: Positions in an input are computed in 32 bits, with a sign.
_MOST: Final = 1 << 31


@dataclass(frozen=True)
class Window:
    """The settings of a convolution over two axes; over one axis, the height is 1."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    output_padding: Pair
    transposed: bool
    groups: int
    #: The number of additional zeros after the input, compared with before it.
    more_after: Pair = (0, 0)

    def result(self, size: Pair) -> Pair:
        """Height and width of the result."""
        height, width = (self._extent(axis, size[axis]) for axis in (0, 1))
        return height, width

    def _extent(self, axis: int, size: int) -> int:
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        if self.transposed:
            before = (size - 1) * self.stride[axis] - 2 * self.padding[axis]
            return before + reach + self.output_padding[axis]
        return (size + 2 * self.padding[axis] + self.more_after[axis] - reach) // self.stride[axis] + 1

    @property
    def plain(self) -> bool:
        """True if each pixel depends on one pixel only, the one at its position."""
        settings = (*self.kernel, *self.stride, self.groups)
        zeros = any((*self.padding, *self.more_after))
        return not self.transposed and not zeros and all(setting == 1 for setting in settings)


def checked_window(call: Reader, found: Window) -> Window:
    """The settings, if they are valid."""
    settings = (*found.kernel, *found.stride, *found.padding, *found.dilation, *found.output_padding, *found.more_after)
    if max(map(abs, settings)) >= _MOST:
        raise call.error(f"has the settings {found}")
    if min(*found.stride, *found.dilation, *found.kernel, found.groups) < 1:
        raise call.error(f"has a stride, dilation, kernel or number of groups below 1: {found}")
    if min(*found.padding, *found.output_padding) < 0:
        raise call.error(f"has a negative padding: {found}")
    return found


def checked_result(call: Reader, x: Value, window: Window) -> Pair:
    """Height and width of the result, if a shader can compute it."""
    size = area_of(x)
    height, width = window.result(size)
    if min(height, width, *size) < 1:
        raise call.error(f"has an input of the size {x.shape}, and a result of the size {(height, width)}")
    _check_positions(call, window, size, (height, width))
    if rounds(*window.kernel, x.shape[1] // window.groups) > MOST_ROUNDS:
        raise call.error(f"has windows of {window.kernel} and {x.shape[1] // window.groups} channels")
    return height, width


def area_of(value: Value) -> Pair:
    """Height and width of images, or of rows."""
    return (1, value.shape[2]) if value.rank == 3 else (value.shape[2], value.shape[3])


def _check_positions(call: Reader, window: Window, size: Pair, result: Pair) -> None:
    """Check that every position that a shader computes fits its integers."""
    for axis in (0, 1):
        reach = window.dilation[axis] * window.kernel[axis] + window.padding[axis]
        ends = (result[axis] + BLOCK) * (1 if window.transposed else window.stride[axis])
        if reach + ends + size[axis] >= _MOST:
            raise call.error(f"has windows that reach too far: {window}")
    # A transposed convolution counts at most twice the pixels along each axis.
    if 4 * math.prod(result) + BLOCK >= _MOST:
        raise call.error(f"has a result of the size {result}")
