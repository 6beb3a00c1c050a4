"""Images with their channels last, and windows over them that end where the image does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from delegatekit_toolkit.arguments import per_axis
from delegatekit_toolkit.layout import to_channels_last
from delegatekit_toolkit.tosa import Tensor

from ..ir.builder import Value, VgfBuilder
from ..ir.limits import WINDOW


@dataclass(frozen=True)
class Image:
    """A tensor (N, H, W, C) or (N, D, H, W, C): rows of numbers are images of height 1."""

    tensor: Tensor
    #: The axes of the program's images.
    axes: int

    def spread(self, setting: Sequence[int], default: int) -> tuple[int, ...]:
        """A setting for each axis: the program's, after `default` for a height of 1."""
        given = per_axis(list(setting), self.axes, default)
        return (default, *given) if self.axes == 1 else given


def image_of(b: VgfBuilder, x: Value, axes: int) -> Image:
    """An image, or several, of this many axes, with the channels last."""
    if len(x.order) == axes + 1:
        x = b.shaped(x, (1, *x.shape))
    if axes == 1:
        x = b.shaped(x, (*x.shape[:2], 1, x.shape[2]))
    return Image(b.stored(x, to_channels_last(len(x.order))), axes)


def result_of(b: VgfBuilder, made: Tensor, shape: Sequence[int]) -> Value:
    """An image with its channels last as the program's tensor."""
    return b.shaped(Value(made, to_channels_last(len(made.shape))), shape)


def beyond_level(
    kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int] = (), gaps: Sequence[int] = ()
) -> str | None:
    """The reason why windows are too large for TOSA's level 8K; None if they are not."""
    reach = [size * gap for size, gap in zip(kernel, gaps or [1] * len(kernel), strict=True)]
    if max(*reach, *strides, *pads) <= WINDOW:
        return None
    return f"windows of {tuple(reach)} in steps of {tuple(strides)}: TOSA has {WINDOW} at most"


def trimmed(
    b: VgfBuilder,
    x: Tensor,
    sizes: Sequence[int],
    reach: Sequence[int],
    strides: Sequence[int],
    before: Sequence[int],
) -> tuple[Tensor, tuple[int, ...]]:
    """An image without what no window reads, and the padding before and after each axis with which windows end there.

    `sizes` are the numbers of windows, `reach` their extents.
    """
    after = [
        (count - 1) * step + extent - size - pad
        for count, step, extent, size, pad in zip(sizes, strides, reach, x.shape[1:-1], before, strict=True)
    ]
    kept = [size + min(0, more) for size, more in zip(x.shape[1:-1], after, strict=True)]
    x = b.sliced(x, [0] * len(x.shape), (x.shape[0], *kept, x.shape[-1]))
    return x, tuple(item for pad, more in zip(before, after, strict=True) for item in (pad, max(0, more)))
