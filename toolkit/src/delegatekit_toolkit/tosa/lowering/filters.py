"""Products with constant weights, summed up: convolutions, and operators computed as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from delegatekit_toolkit.tosa import Conv2d, DepthwiseConv2d, DType, Operator, Tensor
from delegatekit_toolkit.tosa.types import Array

from .builder import TosaBuilder
from .limits import MAX_AXIS
from .values import Scale
from .windows import Pair, Windows

#: Makes a tensor of sums (int32, of int16 int48) and their scale in each channel.
Finish: TypeAlias = Callable[[Tensor, Sequence[float]], Tensor]

#: Types of activations -> those of sums, and the largest bias: sums and bias stay within the NPU's 32 and 40 bits.
SUMS: Final = {DType.INT8: DType.INT32, DType.INT16: DType.INT48}
_LARGEST_BIAS: Final = {DType.INT8: 1 << 30, DType.INT16: 1 << 38}


@dataclass(frozen=True)
class Kernels:
    """`Filters` for an input of one scale: `bias` is in `steps`, the scale of a sum in each output channel."""

    weight: Array
    bias: Array
    steps: Array
    groups: int = 1

    @property
    def largest(self) -> Array:
        """The largest magnitude of int8 sums in each channel."""
        products: Array = np.abs(self.weight.reshape(len(self.weight), -1).astype(np.float64)).sum(1)
        found: Array = 255 * products + np.abs(self.bias)
        return found

    def part(self, channels: slice) -> Kernels:
        """Some of the output channels, as one group."""
        bias = self.bias[channels] if len(self.bias) > 1 else self.bias
        return Kernels(self.weight[channels], bias, self.steps[channels])


@dataclass(frozen=True)
class Filters:
    """Constant weights: int8 of shape (O, I / groups, KH, KW), or (O, I) for one pixel.

    `scales` has the scale of the weights in each output channel, `bias` a number for each of them, or one, or None.
    """

    weight: Array
    scales: Array
    bias: Array | None = None
    groups: int = 1

    def kernels(self, before: Scale) -> Kernels:
        """The filters for an input with this scale.

        If the steps are too small for a bias, the channel's are made larger and its weights smaller: the bias is then
        so much larger than the products that this changes nothing.
        """
        steps, weight = self.scales * before.scale, self.weight
        if self.bias is None:
            return Kernels(weight, np.zeros(1, np.int64), steps, self.groups)
        numbers = np.broadcast_to(self.bias.reshape(-1), steps.shape)
        coarser = np.maximum(1.0, np.abs(numbers) / steps / _LARGEST_BIAS[before.dtype])
        weight = np.rint(weight / coarser.reshape(-1, *[1] * (weight.ndim - 1))).astype(weight.dtype)
        steps = steps * coarser
        return Kernels(weight, np.rint(numbers / steps).astype(np.int64), steps, self.groups)


def pointwise(b: TosaBuilder, x: Tensor, before: Scale, filters: Filters) -> tuple[Tensor, list[float]]:
    """x (N, H, W, I) times weight (O, I), as sums and their scale in each channel."""
    kernels = filters.kernels(before)
    weight = kernels.weight
    constant = b.graph.constant(weight.reshape(weight.shape[0], 1, 1, -1), DType.INT8, f"{b.name}.weight")
    shape, sums = (*x.shape[:3], weight.shape[0]), SUMS[before.dtype]
    made = b.emit(Conv2d(acc_type=sums), (x, constant, *_rest(b, kernels.bias, before)), shape, sums, "sums")
    return b.bound(made, kernels.largest), kernels.steps.tolist()


def convolved(b: TosaBuilder, x: Tensor, before: Scale, filters: Filters, windows: Windows, finish: Finish) -> Tensor:
    """x (N, H, W, C) with filters of the windows' size; `finish` makes the result of the sums of each group."""
    one_pixel = (windows.kernel, windows.stride, windows.pads) == ((1, 1), (1, 1), (0, 0, 0, 0))
    if one_pixel and x.shape[0] > 1 and x.shape[0] * x.shape[1] <= MAX_AXIS:
        joined = one_sample(b, x)
        made = convolved(b, joined, before, filters, replace(windows, sizes=(joined.shape[1], joined.shape[2])), finish)
        return b.reshaped(made, (*x.shape[:3], made.shape[3]))
    kernels, sums = filters.kernels(before), SUMS[before.dtype]
    groups, outputs = kernels.groups, len(kernels.weight)
    if groups == x.shape[3] and groups > 1 and outputs > groups:
        # Several kernels for a channel: each gets a channel of its own. A compiler in use orders the results wrongly.
        copies = np.repeat(np.eye(groups, dtype=np.int8), outputs // groups, axis=0)
        copied, _ = pointwise(b, x, before, Filters(copies, np.ones(1)))
        x = b.rescaled(copied, [1.0], output_zero=before.zero_point, dtype=before.dtype, name="repeated")
        groups = outputs
    if groups == x.shape[3] and groups > 1:
        weight = kernels.weight.reshape(groups, -1, *windows.kernel).transpose(2, 3, 0, 1)
        constant = b.graph.constant(weight, DType.INT8, f"{b.name}.weight")
        operands = (x, constant, *_rest(b, kernels.bias, before))
        depthwise = DepthwiseConv2d(windows.pads, windows.stride, windows.dilation, acc_type=sums)
        made = b.emit(depthwise, operands, (x.shape[0], *windows.sizes, outputs), sums, "sums")
        return finish(b.bound(made, kernels.largest), kernels.steps.tolist())
    operator = Conv2d(windows.pads, windows.stride, windows.dilation, acc_type=sums)
    return grouped(b, x, before, kernels, operator, windows.sizes, finish)


def one_sample(b: TosaBuilder, x: Tensor) -> Tensor:
    """(N, H, W, C) as rows of one sample, for a convolution of one pixel.

    A compiler in use drops the padding and the moves of a reader of several samples after such a convolution.
    """
    return b.reshaped(x, (1, x.shape[0] * x.shape[1], *x.shape[2:]))


def grouped(
    b: TosaBuilder, x: Tensor, before: Scale, kernels: Kernels, operator: Operator, sizes: Pair, finish: Finish
) -> Tensor:
    """One convolution for each group of channels, and the results concatenated; `operator` has the settings."""
    each, count = x.shape[3] // kernels.groups, len(kernels.weight) // kernels.groups
    parts = []
    for group in range(kernels.groups):
        own = kernels.part(slice(group * count, (group + 1) * count))
        constant = b.graph.constant(own.weight.transpose(0, 2, 3, 1), DType.INT8, f"{b.name}.weight")
        part = b.sliced(x, (0, 0, 0, group * each), (*x.shape[:3], each))
        operands = (part, constant, *_rest(b, own.bias, before))
        sums = b.emit(operator, operands, (x.shape[0], *sizes, count), SUMS[before.dtype], "sums")
        parts.append(finish(b.bound(sums, own.largest), own.steps.tolist()))
    return b.joined(parts, 3, "groups")


def _rest(b: TosaBuilder, bias: Array, before: Scale) -> tuple[Tensor, ...]:
    """The other operands of a convolution: bias and zero points."""
    return (
        b.graph.constant(bias, SUMS[before.dtype], f"{b.name}.bias"),
        b.number(before.zero_point, before.dtype),
        b.number(0),
    )
