"""What the NPU can do, in numbers: for shapes and settings it says why an operator is refused, or None.

The limits are those that Vela's compiler states for TOSA on the Ethos-U55 and U65, the narrowest: what they allow
compiles for every accelerator. Where the U85 can do more, a function is told. Shapes are PyTorch's, (N, C, H, W).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import Any, Final

import numpy as np

#: Axes of a tensor.
MAX_RANK: Final = 6
#: Elements along one axis of a feature map.
MAX_AXIS: Final = 1 << 16
MAX_STRIDE: Final = 3
MAX_DILATION: Final = 2
#: Of transposed convolutions: more rows and columns than any network makes of one.
MAX_TRANSPOSED_STRIDE: Final = 16
#: Height, and elements, of a convolution's kernel and of a pooling's window.
KERNEL: Final = (64, 4096)
WINDOW: Final = (256, 1 << 16)
#: Steps from one pixel to the next, and how much smaller images are made.
MAX_RESIZE_STEPS: Final = 1 << 11
MAX_SHRINKING: Final = 16
#: Windows of averages that leave out the padding.
PADDED_WINDOW: Final = 8
#: Sums of the exponentials of a softmax, each below 2^15, fit 31 bits.
MAX_SOFTMAX: Final = 1 << 15
#: From the smallest to the largest score of a log_softmax, whose steps are 2^-16 in 29 bits.
MAX_SCORES: Final = 1 << 13
#: Sums of squares in a norm of int8 and int16, of differences from the mean and from the zero point, fit 29 bits.
MAX_NORM: Final = 1 << 14
MAX_ROOT_MEAN_SQUARE: Final = 1 << 12

#: Scores of minus so much, or less, are hidden from a softmax, whatever the others are.
HIDDEN: Final = 80.0
#: Axes up to which two operands are broadcast.
COMMON_RANK: Final = 4


def count(shape: Sequence[int]) -> int:
    """Elements of a shape."""
    return math.prod(shape)


def rank_obstacle(shape: Sequence[int]) -> str | None:
    """At most 6 axes, each of 65536 elements at most, and none empty."""
    if len(shape) > MAX_RANK:
        return f"it has {len(shape)} axes, more than {MAX_RANK}"
    if 0 in shape:
        return f"it has no elements, {tuple(shape)}"
    return f"an axis of {tuple(shape)} has more than {MAX_AXIS} elements" if max(shape, default=1) > MAX_AXIS else None


def _size_obstacle(kernel: Sequence[int], limits: tuple[int, int], what: str) -> str | None:
    height = kernel[0] if len(kernel) > 1 else 1
    if height <= limits[0] and math.prod(kernel) <= limits[1]:
        return None
    return f"a {what} of {'x'.join(map(str, kernel))}: {limits[0]} high and {limits[1]} elements are the most"


def convolution_obstacle(
    shape: Sequence[int],
    weight: Sequence[int],
    result: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
) -> str | None:
    """1-d or 2-d; kernels, with their gaps, to 64 high and of 4096 elements; no windows of nothing but padding."""
    axes = len(weight) - 2
    if axes not in (1, 2):
        return f"a convolution over {axes} axes: the NPU has one and two"
    if min(padding, default=0) < 0:
        return f"negative padding {tuple(padding)}"
    extent = [step * (size - 1) + 1 for step, size in zip(dilation, weight[2:], strict=True)]
    axes_of = zip(shape[2:], result[2:], weight[2:], stride, dilation, padding, strict=False)
    if not all(starmap(_reads, axes_of)):
        return f"its windows read nothing but padding {tuple(padding)}"
    return _size_obstacle(extent, KERNEL, "kernel")


def _reads(size: int, count: int, window: int, step: int, gap: int, pad: int) -> bool:
    """Whether any window along an axis reads more than padding."""
    return any(0 <= at * step + tap * gap - pad < size for at in range(count) for tap in range(window))


def transposed_obstacle(weight: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> str | None:
    """1-d or 2-d; any stride; no dilation; kernels to 64 high and of 4096 elements."""
    axes = len(weight) - 2
    if axes not in (1, 2):
        return f"a convolution over {axes} axes: the NPU has one and two"
    if max(dilation) > 1:
        return f"a transposed convolution with dilation {tuple(dilation)}"
    if max(stride) > MAX_TRANSPOSED_STRIDE:
        return f"a transposed convolution with stride {tuple(stride)}: {MAX_TRANSPOSED_STRIDE} is the most"
    return _size_obstacle(weight[2:], KERNEL, "kernel")


def maximum_obstacle(shape: Sequence[int], kernel: Sequence[int], dilation: Sequence[int]) -> str | None:
    """Windows to 256 high, without dilation, with a batch axis."""
    if len(shape) != len(kernel) + 2:
        return "its input has no batch axis"
    if max(dilation) > 1:
        return f"a maximum with dilation {tuple(dilation)}"
    return _size_obstacle(kernel, WINDOW, "window")


def average_obstacle(shape: Sequence[int], kernel: Sequence[int]) -> str | None:
    """Windows to 64 high and of 4096 elements, with a batch axis."""
    if len(shape) != len(kernel) + 2:
        return "its input has no batch axis"
    return _size_obstacle(kernel, KERNEL, "window")


def divisor_obstacle(padding: Any, counts_padding: bool, rounds_up: bool) -> str | None:
    """All windows of an average have one divisor: padding counts, and sizes are not rounded up."""
    if rounds_up:
        return "its sizes are rounded up: windows have divisors of their own"
    pads = [padding] if isinstance(padding, int) else padding or ()
    return (
        "its averages leave out the padding: windows have divisors of their own"
        if any(pads) and not counts_padding
        else None
    )


def resize_obstacle(
    before: Sequence[int],
    after: Sequence[int],
    mode: str,
    corners: bool,
    factors: Sequence[float] | None,
    lacks: str | None = "nothing else is possible",
) -> str | None:
    """(N, C, H, W), made larger by whole factors; bilinear by 2, 4 or 8, the same along both axes.

    With `lacks`, the reason of what only the U85 does, None: of any sizes, with corners aligned or not.
    """
    if len(before) != 4:
        return f"an input of {len(before)} axes"
    sizes = list(zip(before[2:], after[2:], strict=True))
    if mode == "nearest" and not all(starmap(_finds_pixels, sizes)):
        return f"from {tuple(before[2:])} to {tuple(after[2:])} PyTorch's rounding finds other pixels"
    ratios = [new / old for old, new in sizes]
    if factors and list(factors) != ratios:
        return f"scale_factors {tuple(factors)} are not the ratio of the sizes"
    if mode == "nearest" and all(ratio.is_integer() for ratio in ratios):
        return None
    if mode == "bilinear" and not corners and len(set(ratios)) == 1 and ratios[0] in (2, 4, 8):
        return None
    if lacks is not None:
        return f"{lacks} (from {tuple(before[2:])} to {tuple(after[2:])}{', corners aligned' if corners else ''})"
    return next((reason for old, new in sizes if (reason := _step_obstacle(old, new, mode, corners))), None)


def resize_steps(old: int, new: int, mode: str, corners: bool) -> tuple[int, int, int, int]:
    """How TOSA's RESIZE makes an axis of `new` pixels of `old`: numerator, denominator, offset and border."""
    if corners:
        up, down = new - 1, old - 1
        shared = math.gcd(up, down)
        up, down, offset = 2 * up // shared, 2 * down // shared, 0
    else:
        shared = math.gcd(new, old)
        up, down = 2 * new // shared, 2 * old // shared
        # Rounded to the nearest, half a pixel less gives the one before; between centres all lies half a pixel off.
        offset = -up // 2 if mode == "nearest" else (down - up) // 2
    return up, down, offset, (new - 1) * down - (old - 1) * up + offset


def _step_obstacle(old: int, new: int, mode: str, corners: bool) -> str | None:
    if corners and 1 in (old, new):
        return f"from {old} to {new}: one pixel has no two corners"
    up, down, _, _ = resize_steps(old, new, mode, corners)
    if up > MAX_RESIZE_STEPS or down >= MAX_SHRINKING * up:
        least = f"steps of a {MAX_RESIZE_STEPS // 2}th, and a {MAX_SHRINKING}th of the size, are the least"
        return f"from {old} to {new}: {least}"
    return None


def _finds_pixels(old: int, new: int) -> bool:
    """Whether PyTorch, which multiplies in single precision, finds the nearest pixels."""
    found = np.floor(np.arange(new, dtype=np.float32) * np.float32(old / new)).clip(max=old - 1)
    return bool((found == np.arange(new) * old // new).all())


def softmax_obstacle(shape: Sequence[int], dim: int) -> str | None:
    """Over 2 to 32768 elements."""
    size = shape[dim] if shape else 1
    if size == 1:
        return "a softmax of one element is constant"
    return None if size <= MAX_SOFTMAX else f"a softmax of {size} elements: {MAX_SOFTMAX} is the most"


def masked_obstacle(shape: Sequence[int], scores: Sequence[int]) -> str | None:
    """Scores of at most 4 axes, which the mask does not repeat."""
    if tuple(shape) != tuple(scores):
        return f"its mask makes {tuple(shape)} of scores {tuple(scores)}"
    return None if len(shape) <= COMMON_RANK else f"a mask over {len(shape)} axes: {COMMON_RANK} are the most"


def norm_obstacle(shape: Sequence[int], rows: int, *, centred: bool = True) -> str | None:
    """A shape cut into rows of 2 to 16384 elements (4096 if no mean is subtracted); at most 65536 rows."""
    size = count(shape) // rows
    most = MAX_NORM if centred else MAX_ROOT_MEAN_SQUARE
    if not 2 <= size <= most:
        return f"a norm of {size} elements: 2 to {most} are possible"
    return None if rows <= MAX_AXIS else f"{rows} norms: {MAX_AXIS} are the most"


def common_rank_obstacle(operands: Iterable[Sequence[int]], result: Sequence[int]) -> str | None:
    """Operands are repeated along at most 4 axes. (Constants need not be.)"""
    if len(result) <= COMMON_RANK or all(tuple(shape) == tuple(result) for shape in operands):
        return None
    return f"operands of several shapes make one of {len(result)} axes: {COMMON_RANK} are the most"


def indices_obstacle(dtype: object) -> str:
    """Why indices that are not int32 are refused."""
    kind = str(dtype).removeprefix("torch.")
    return f"its indices are {kind}, the NPU reads int32: give the program int32, or convert them (`.to(torch.int32)`)"


def matrices_obstacle(left: Sequence[int], right: Sequence[int]) -> str | None:
    """Matrices, or stacks of as many."""
    if min(len(left), len(right)) < 2:
        return f"a product of shapes {tuple(left)} and {tuple(right)}"
    if tuple(left[:-2]) != tuple(right[:-2]):
        return f"stacks {tuple(left[:-2])} and {tuple(right[:-2])} are not the same"
    return None


def adaptive_obstacle(before: Sequence[int], after: Sequence[int], axes: int) -> str | None:
    """The result's sizes divide the input's; windows to 64 high and of 4096 elements."""
    if len(before) != axes + 2:
        return "its input has no batch axis"
    sizes = before[-axes:]
    if any(old % new for old, new in zip(sizes, after[-axes:], strict=True)):
        return f"{tuple(sizes)} is not a multiple of {tuple(after[-axes:])}"
    return _size_obstacle([old // new for old, new in zip(sizes, after[-axes:], strict=True)], KERNEL, "window")


def sum_obstacle(shape: Sequence[int], dims: Any) -> str | None:
    """At most 65536 elements are reduced."""
    axes = [dims] if isinstance(dims, int) else dims or range(len(shape))
    size = math.prod(shape[axis] for axis in axes)
    return None if size <= MAX_AXIS else f"a sum of {size} elements: {MAX_AXIS} is the most"


def extreme_obstacle(shape: Sequence[int], dims: Any) -> str | None:
    """Over axes of at most 256 elements; at most 65536 results of one."""
    axes = [dims] if isinstance(dims, int) else dims or range(len(shape))
    for axis in axes:
        size = shape[axis] if shape else 1
        if size > WINDOW[0]:
            return f"the extreme of {size} elements along an axis: {WINDOW[0]} are the most"
        if size > 1 and count(shape) // size > MAX_AXIS:
            return f"{count(shape) // size} extremes: {MAX_AXIS} are the most"
    return None
