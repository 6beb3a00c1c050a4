"""CMSIS-NN's sizes of scratch memory, from the binding in ExecuTorch's wheel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias

from delegatekit_api import Availability

from . import wheel

#: Shapes (N, H, W, C); of filters (O, H, W, I).
Shape: TypeAlias = Sequence[int]


def availability() -> Availability:
    """The availability of the binding; it is not loaded."""
    return wheel.availability("library/_cmsis_nn", "CMSIS-NN's binding is", "compiler")


class Scratch:
    """The bytes of scratch memory that kernels need with an extension: "mve", "dsp" or "scalar"."""

    def __init__(self, extension: str) -> None:
        self._extension = extension

    @cached_property
    def _library(self) -> Any:
        from executorch.backends.cortex_m.library import cmsis_nn

        return cmsis_nn

    def _size(self, function: str, **settings: Any) -> int:
        library = self._library
        backend = getattr(library.Backend, self._extension.upper())
        return int(getattr(library, function)(backend, library.DataType.A8W8, **settings))

    def convolution(self, **settings: Any) -> int:
        """Of a convolution."""
        return self._size("convolve_wrapper_buffer_size", **settings)

    def depthwise(self, **settings: Any) -> int:
        """Of a convolution of each channel by itself."""
        return self._size("depthwise_conv_wrapper_buffer_size", **settings)

    def transposed(self, **settings: Any) -> tuple[int, int]:
        """Of a transposed convolution: for its input, and for its result."""
        result = {name: value for name, value in settings.items() if name != "output_nhwc"}
        return (
            self._size("transpose_conv_buffer_size", **settings),
            self._size("transpose_conv_reverse_conv_buffer_size", **result),
        )

    def average(self, width: int, channels: int) -> int:
        """Of an average over windows, for the width of its result."""
        return self._size("avgpool_buffer_size", dim_dst_width=width, ch_src=channels)

    def product(self, inner: int, columns: int) -> int:
        """Of a product of matrices."""
        return self._size("fully_connected_buffer_size", filter_nhwc=[inner, -1, -1, columns])
