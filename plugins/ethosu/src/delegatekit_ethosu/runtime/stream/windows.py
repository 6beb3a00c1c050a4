"""Windows over an input: padding, upscaling and strides as array slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .operations import Kernel, Upscale

_Number = TypeVar("_Number", bound=np.generic)


def padded(values: npt.NDArray[_Number], kernel: Kernel, upscale: Upscale, fill: Any) -> npt.NDArray[_Number]:
    """An input [height, width, depth], doubled if the operation requests it, with `fill` as padding."""
    if upscale is not Upscale.NONE:
        height, width, depth = values.shape
        doubled = np.zeros((2 * height, 2 * width, depth), values.dtype)
        doubled[::2, ::2] = values
        if upscale is Upscale.NEAREST:
            doubled[::2, 1::2] = values
            doubled[1::2] = doubled[::2]
        values = doubled
    top, left, bottom, right = kernel.padding
    if not any(kernel.padding):
        return values
    return np.pad(values, ((top, bottom), (left, right), (0, 0)), constant_values=fill)


def windows(
    values: npt.NDArray[_Number], kernel: Kernel, height: int, width: int
) -> Iterator[tuple[int, int, npt.NDArray[_Number]]]:
    """For each kernel element (y, x), the padded input that it meets: [height, width, depth] of the output."""
    (step_y, step_x), (apart_y, apart_x) = kernel.stride, kernel.dilation
    for y in range(kernel.size[0]):
        rows = slice(y * apart_y, y * apart_y + step_y * (height - 1) + 1, step_y)
        for x in range(kernel.size[1]):
            columns = slice(x * apart_x, x * apart_x + step_x * (width - 1) + 1, step_x)
            yield y, x, values[rows, columns]
