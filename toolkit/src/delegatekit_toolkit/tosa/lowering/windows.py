"""Windows over images: strides that the NPU supports, padding that ends with the last window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from delegatekit_toolkit.tosa import Tensor

from .builder import TosaBuilder
from .limits import MAX_STRIDE

#: Along height and width.
Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Windows:
    """Windows over the rows and columns of an image (N, H, W, C); there are `sizes` of them along height and width."""

    kernel: Pair
    sizes: Pair
    stride: Pair = (1, 1)
    #: Top, bottom, left, right.
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    @property
    def padding(self) -> Pair:
        """The padding before the first row and column."""
        return self.pads[0], self.pads[2]

    def padded(self, before: Pair, after: Pair) -> Windows:
        """These windows with other padding."""
        return replace(self, pads=(before[0], after[0], before[1], after[1]))

    def trailing(self, shape: Sequence[int]) -> tuple[int, int]:
        """The padding after each axis of an image of this height and width with which windows end where the image does.

        Negative: that many rows or columns of the image are never read.
        """
        high, wide = (
            (count - 1) * step + gap * (window - 1) + 1 - size - before
            for size, count, window, step, before, gap in zip(
                shape, self.sizes, self.kernel, self.stride, self.padding, self.dilation, strict=True
            )
        )
        return high, wide

    def possible(self) -> tuple[Windows, Pair]:
        """Windows with strides that the NPU supports, and the rest of larger strides: see `thinned`.

        Along an axis with one window the stride is never applied.
        """
        needed = [1 if size == 1 else step for step, size in zip(self.stride, self.sizes, strict=True)]
        high, wide = (next(step for step in range(MAX_STRIDE, 0, -1) if want % step == 0) for want in needed)
        more_high, more_wide = needed[0] // high, needed[1] // wide
        sizes = (self.sizes[0] - 1) * more_high + 1, (self.sizes[1] - 1) * more_wide + 1
        return replace(self, stride=(high, wide), sizes=sizes), (more_high, more_wide)


def fitted(b: TosaBuilder, x: Tensor, windows: Windows) -> tuple[Tensor, Windows]:
    """The image without rows and columns that no window reads, and the padding with which the last windows end."""
    after = windows.trailing(x.shape[1:3])
    kept = [size + min(0, more) for size, more in zip(x.shape[1:3], after, strict=True)]
    x = b.sliced(x, (0, 0, 0, 0), (x.shape[0], *kept, x.shape[3]))
    return x, windows.padded(windows.padding, (max(0, after[0]), max(0, after[1])))


def thinned(b: TosaBuilder, x: Tensor, steps: Pair) -> Tensor:
    """Every `steps`-th row and column of (N, H, W, C), the first and the last among them."""
    for axis, step in zip((1, 2), steps, strict=True):
        if step == 1:
            continue
        rows = (x.shape[axis] - 1) // step
        outer, inner = x.shape[:axis], x.shape[axis + 1 :]
        cut = b.reshaped(b.sliced(x, (0, 0, 0, 0), (*outer, rows * step, *inner)), (*outer, rows, step, *inner))
        first = b.reshaped(b.sliced(cut, [0] * 5, (*outer, rows, 1, *inner)), (*outer, rows, *inner))
        start = [rows * step if place == axis else 0 for place in range(4)]
        last = b.sliced(x, start, (*outer, 1, *inner))
        x = b.joined((first, last), axis, "thinned")
    return x
