"""Implementations of a blob's operators on the device: a file for each family, and the table of all of them."""

from __future__ import annotations

from typing import Final

from ..calls import Kernel
from . import (
    attention,
    convolution,
    elementwise,
    indexing,
    normalization,
    pooling,
    products,
    quantization,
    quantized_convolution,
    quantized_products,
    reduction,
    shape,
    spatial,
)

#: Operator -> the function that writes the dispatches of its calls.
KERNELS: Final[dict[str, Kernel]] = {
    **attention.KERNELS,
    **convolution.KERNELS,
    **elementwise.KERNELS,
    **indexing.KERNELS,
    **normalization.KERNELS,
    **pooling.KERNELS,
    **products.KERNELS,
    **quantization.KERNELS,
    **quantized_convolution.KERNELS,
    **quantized_products.KERNELS,
    **reduction.KERNELS,
    **shape.KERNELS,
    **spatial.KERNELS,
}
