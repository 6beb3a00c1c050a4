"""Convolutions: the choice of the shader, and the weights in the shader's order."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from ...ir.graph import Tensor
from ..calls import Kernel, Reader
from ..memory import Value
from ..tape import Packing, Tape
from .windows import BLOCK, Pair, Window, area_of, checked_result, checked_window

Array: TypeAlias = "np.ndarray[Any, Any]"

#: Rows that an invocation of conv_depthwise computes, and the widest kernel for which it has registers.
_ROWS: Final = 2
_WIDEST: Final = 7


@dataclass(frozen=True)
class Filters:
    """The constants of a convolution, and the bounds of its result."""

    weight: Tensor
    bias: Tensor | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)
    #: Returns PyTorch's order of the weight, (outputs, inputs of a group, *kernel) or, transposed, (inputs, outputs of
    #: a group, *kernel), if the file has another one; `form` names it.
    order: Packing | None = None
    form: Hashable = ""


def convolution(tape: Tape, call: Reader) -> None:
    """aten.convolution, and et_vk.conv_with_clamp with the bounds as arguments 9 and 10."""
    x, window = _input(tape, call)
    channels = _channels(call, x, window)
    height, width = checked_result(call, x, window)
    shape = (x.shape[0], channels, *((width,) if x.rank == 3 else (height, width)))
    target = tape.result(call.result, shape)
    if not (x.is_float and target.is_float):
        raise call.error("computes with integers")
    convolve(tape, window, x, target, _filters(call))


def _input(tape: Tape, call: Reader) -> tuple[Value, Window]:
    """The input, without zeros around its last axes if the shader can add them, and the settings."""
    padded = tape.unpadded(call.declared(0))
    if padded is not None and padded.source.rank in (3, 4):
        axes = padded.source.rank - 2
        window = _window(call, axes)
        if not window.transposed and not any((*padded.before[:2], *padded.after[:2])):
            before, after = _pair(padded.before[2:], 0), _pair(padded.after[2:], 0)
            own = (window.padding[0] + before[0], window.padding[1] + before[1])
            more = (after[0] - before[0], after[1] - before[1])
            return padded.source, checked_window(call, replace(window, padding=own, more_after=more))
    x = call.tensor(0, 3, 4)
    return x, _window(call, x.rank - 2)


def _filters(call: Reader) -> Filters:
    low, high = call.number(9, -math.inf), call.number(10, math.inf)
    if math.isnan(low) or math.isnan(high):
        raise call.error("is clamped to NaN")
    return Filters(call.declared(1), None if call.is_none(2) else call.declared(2), (low, high))


def convolve(tape: Tape, window: Window, x: Value, target: Value, filters: Filters) -> None:
    """Dispatch a convolution of float32 values with checked sizes."""
    run = _Convolution(tape, window, x, target, filters)
    if window.plain and math.prod(run.size) % 4 == 0:
        run.pointwise()
    elif run.is_depthwise:
        run.depthwise()
    else:
        run.general()


class _Convolution:
    """A checked convolution."""

    def __init__(self, tape: Tape, window: Window, x: Value, target: Value, filters: Filters) -> None:
        self.tape, self.window, self.x, self.target, self.filters = tape, window, x, target, filters
        self.size = area_of(x)
        self.result = area_of(target)
        self.images, self.inputs, self.outputs = x.shape[0], x.shape[1], target.shape[1]
        self.bounds = filters.bounds
        self.flags = (target.is_half, self.bounds != (-math.inf, math.inf), filters.bias is not None)

    @property
    def is_depthwise(self) -> bool:
        """True if the depthwise shader can compute it."""
        window = self.window
        return (
            window.groups == self.inputs
            and not window.transposed
            and window.dilation == (1, 1)
            and window.stride in ((1, 1), (2, 2))
            and window.kernel[1] <= _WIDEST
        )

    def pointwise(self) -> None:
        """A product of matrices, one column for each pixel."""
        quads = self.size[0] * self.size[1] // 4
        across = -(-quads // 2)
        items = self.images * -(-self.outputs // BLOCK) * across
        push = (items, across, self.inputs, self.outputs, quads, *self.bounds)
        self._dispatch("conv_pointwise", self._blocked_weight(), self._blocked_bias(), push, self.flags, items)

    def general(self) -> None:
        """Any convolution."""
        window, groups = self.window, self.window.groups
        inputs, outputs = self.inputs // groups, self.outputs // groups
        blocks = -(-outputs // BLOCK)
        across = -(-self._pixels() // BLOCK)
        items = self.images * groups * blocks * across
        pairs = (self.size, self.result, window.kernel, window.stride, window.padding, window.dilation)
        settings = [number for pair in pairs for number in pair]
        push = (items, across, groups, inputs, outputs, blocks, *settings, *self.bounds)
        flags = (*self.flags, window.transposed)
        self._dispatch("conv", self._blocked_weight(), self._blocked_bias(), push, flags, items)

    def depthwise(self) -> None:
        """Each channel separately."""
        window = self.window
        down, across = -(-self.result[0] // _ROWS), -(-self.result[1] // BLOCK)
        items = self.images * self.outputs * down * across
        tall, wide = window.kernel
        quads = 2 if wide > 4 else 1

        def pack(weight: Array) -> Array:
            rows = weight.reshape(self.outputs, tall, wide).astype(np.float32)
            return np.pad(rows, ((0, 0), (0, 0), (0, 4 * quads - wide)))

        weight = self._weight((self.outputs, tall, 4 * quads), "rows", pack)
        bias = weight if self.filters.bias is None else self.tape.value(self.filters.bias)
        sizes = (*self.size, *self.result, *window.padding)
        multiplier = self.outputs // self.inputs
        push = (items, down, across, self.outputs, multiplier, tall, *sizes, *self.bounds)
        flags = (*self.flags, wide, window.stride[0], self.result[1] % 4 == 0)
        self._dispatch("conv_depthwise", weight, bias, push, flags, items)

    def _pixels(self) -> int:
        """Pixels of a plane as the shader counts them: transposed ones in phases of equal size."""
        if not self.window.transposed:
            return self.result[0] * self.result[1]
        pairs = zip(self.result, self.window.stride, strict=True)
        return math.prod(-(-size // step) * min(size, step) for size, step in pairs)

    def _blocked_weight(self) -> Value:
        """Groups, blocks of channels, kernel, channels of the input; then the channels of a block."""
        groups, kernel = self.window.groups, self.window.kernel
        inputs, outputs = self.inputs // groups, self.outputs // groups
        blocks = -(-outputs // BLOCK)
        transposed = self.window.transposed

        def pack(weight: Array) -> Array:
            if transposed:
                parts = weight.reshape(groups, inputs, outputs, *kernel).transpose(0, 2, 3, 4, 1)
            else:
                parts = weight.reshape(groups, outputs, inputs, *kernel).transpose(0, 1, 3, 4, 2)
            parts = np.pad(parts.astype(np.float32), ((0, 0), (0, blocks * BLOCK - outputs), *(((0, 0),) * 3)))
            packed: Array = parts.reshape(groups, blocks, BLOCK, *kernel, inputs).transpose(0, 1, 3, 4, 5, 2)
            return packed

        shape = (groups, blocks, *kernel, inputs, BLOCK)
        return self._weight(shape, ("blocks", groups, transposed), pack)

    def _blocked_bias(self) -> Value | None:
        if self.filters.bias is None:
            return None
        groups = self.window.groups
        outputs = self.outputs // groups
        blocks = -(-outputs // BLOCK)

        def pack(bias: Array) -> Array:
            parts = bias.reshape(groups, outputs).astype(np.float32)
            return np.pad(parts, ((0, 0), (0, blocks * BLOCK - outputs)))

        shape = (groups, blocks * BLOCK)
        return self.tape.constant(self.filters.bias, shape, (("blocks", groups), shape), pack)

    def _weight(self, shape: tuple[int, ...], form: Hashable, pack: Packing) -> Value:
        order = self.filters.order

        def packed(weight: Array) -> Array:
            return pack(weight if order is None else order(weight))

        return self.tape.constant(self.filters.weight, shape, (form, self.filters.form, shape), packed)

    def _dispatch(
        self,
        shader: str,
        weight: Value,
        bias: Value | None,
        push: tuple[int | float, ...],
        flags: tuple[int | bool, ...],
        items: int,
    ) -> None:
        # A shader without bias reads nothing there: any buffer suffices.
        buffers = (self.x, weight, weight if bias is None else bias, self.target)
        self.tape.dispatch(shader, buffers, push, flags, items=items)


def _window(call: Reader, axes: int) -> Window:
    weight = call.declared(1)
    if weight.data is None or weight.rank != axes + 2:
        raise call.error(f"has a weight of {weight.rank} axes, or a computed one: a constant of {axes + 2} is taken")
    transposed = call.truth(6)
    return checked_window(
        call,
        Window(
            kernel=_pair(weight.sizes[2:], 1),
            stride=_pair(call.integers(3, axes), 1),
            padding=_pair(call.integers(4, axes), 0),
            dilation=_pair(call.integers(5, axes), 1),
            output_padding=_pair(call.integers(7, axes), 0) if transposed else (0, 0),
            transposed=transposed,
            groups=call.integer(8),
        ),
    )


def _pair(numbers: Sequence[int], one: int) -> Pair:
    return (one, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _channels(call: Reader, x: Value, window: Window) -> int:
    """Channels of the result; input, weight and bias must match each other."""
    sizes, groups = call.declared(1).sizes, window.groups
    outputs = sizes[1] * groups if window.transposed else sizes[0]
    inputs = sizes[0] if window.transposed else sizes[1] * groups
    if x.shape[1] != inputs or not inputs or not outputs or inputs % groups or outputs % groups:
        raise call.error(f"has a weight {sizes} with {groups} groups for an input {x.shape}")
    if not call.is_none(2):
        bias = call.declared(2)
        if bias.data is None or bias.sizes != (outputs,) or not bias.datatype.is_float:
            raise call.error(f"has a bias {bias.sizes}, or a computed one: a constant of {outputs} numbers is taken")
    if not call.declared(1).datatype.is_float:
        raise call.error("has integers as weights")
    return outputs


KERNELS: Final[dict[str, Kernel]] = {
    "aten.convolution.default": convolution,
    "et_vk.conv_with_clamp.default": convolution,
}
