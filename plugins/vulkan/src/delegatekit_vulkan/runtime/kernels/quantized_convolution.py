"""Convolutions of integers to integers: the float shaders compute the sums of their products.

A sum is exact up to 2^24, which 514 products of an activation without its zero point and a weight never exceed; beyond
that it has the precision of PyTorch's float32 convolution, which these operators represent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from ...ir.graph import Tensor
from ...ir.types import DataType
from ..calls import Kernel, Reader
from ..memory import Value
from ..tape import Tape
from .affine import (
    Sums,
    activation,
    bias_of,
    check_sizes,
    check_sums,
    factors_of,
    integers,
    read_step,
    requantize,
    scales_of,
    whole_numbers,
)
from .convolution import Filters, convolve
from .windows import Pair, Window, checked_result, checked_window

Array: TypeAlias = "np.ndarray[Any, Any]"
#: The weight in PyTorch's order, and the channels of the result.
_Read: TypeAlias = "Callable[[Reader, Value, Window], tuple[Filters, int]]"


def _kernel(read: _Read, *, transposed: bool = False) -> Kernel:
    def kernel(tape: Tape, call: Reader) -> None:
        x = call.tensor(0, 4)
        window = _window(call, transposed=transposed)
        filters, channels = read(call, x, window)
        area = checked_result(call, x, window)
        target = tape.result(call.result, (x.shape[0], channels, *area))
        given, step, bounds = (
            read_step(call, 1, x.datatype),
            read_step(call, 6, target.datatype),
            integers(call, target.datatype),
        )
        check_sums(call, 4, channels)
        factors = factors_of(tape, scales_of(call, 5, channels), channels, given.scale)
        what = Sums(factors, bias_of(call, 8, channels), math.prod(area))
        relu = activation(call, 15 if transposed else 14)
        sums = tape.scratch(target.shape)
        convolve(tape, window, whole_numbers(tape, x, given.zero_point), sums, filters)
        requantize(tape, sums, target, given, step, bounds, sums=what, relu=relu)

    return kernel


def _window(call: Reader, *, transposed: bool) -> Window:
    def pair(position: int) -> Pair:
        first, second = call.integers(position, 2)
        return first, second

    after = 13 if transposed else 12
    return checked_window(
        call,
        Window(
            kernel=pair(9),
            stride=pair(10),
            padding=pair(11),
            dilation=pair(after),
            output_padding=pair(12) if transposed else (0, 0),
            transposed=transposed,
            groups=call.integer(after + 1),
        ),
    )


def _weight(call: Reader) -> Tensor:
    found = call.declared(3)
    if found.data is None or found.datatype is not DataType.INT8:
        raise call.error(f"has the weight {found!r}, or a computed one: a constant of INT8 is taken")
    return found


def _rows(call: Reader, x: Value, window: Window) -> tuple[Filters, int]:
    """A row for each channel of the result: the kernel's elements, the channels of a group in each."""
    weight, groups = _weight(call), window.groups
    channels, inputs = weight.sizes[0] if weight.rank else 0, x.shape[1]
    if not channels or not inputs or channels % groups or inputs % groups:
        raise call.error(f"has a weight {weight.sizes} with {groups} groups for an input {x.shape}")
    outputs, inputs = channels // groups, inputs // groups
    size = math.prod(window.kernel) * inputs
    check_sizes(call, 3, channels, size)

    def order(elements: Array) -> Array:
        found: Array = elements[:, :size].reshape(groups, outputs, *window.kernel, inputs)
        if window.transposed:
            found = found.transpose(0, 4, 1, 2, 3).reshape(groups * inputs, outputs, *window.kernel)
        else:
            found = found.transpose(0, 1, 4, 2, 3).reshape(channels, inputs, *window.kernel)
        return found

    return Filters(weight, order=order, form=("rows", window.kernel, inputs)), channels


def _channels_last(call: Reader, x: Value, window: Window) -> tuple[Filters, int]:
    """Each channel separately, the channels of each of the kernel's elements together."""
    weight, channels = _weight(call), x.shape[1]
    if not channels or window.groups != channels:
        raise call.error(f"has {window.groups} groups for {channels} channels, each by itself")
    check_sizes(call, 3, *window.kernel, channels)

    def order(elements: Array) -> Array:
        found: Array = elements[..., :channels].transpose(2, 0, 1)[:, None]
        return found

    return Filters(weight, order=order, form=("channels last", window.kernel)), channels


KERNELS: Final[dict[str, Kernel]] = {
    "et_vk.q8ta_conv2d.default": _kernel(_rows),
    "et_vk.q8ta_conv2d_pw.default": _kernel(_rows),
    "et_vk.q8ta_conv2d_dw.default": _kernel(_channels_last),
    "et_vk.q8ta_conv2d_transposed.default": _kernel(_rows, transposed=True),
}
