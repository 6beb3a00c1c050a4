"""The operations of MIL that are executed here, a file for each family."""

from __future__ import annotations

from typing import Final

from ..kernel import Kernel
from . import (
    constants,
    convolution,
    elementwise,
    image,
    indexing,
    normalization,
    products,
    recurrent,
    reduction,
    scattering,
    shape,
)

#: Kind of operation -> its kernel.
KERNELS: Final[dict[str, Kernel]] = {
    **elementwise.KERNELS,
    **reduction.KERNELS,
    **shape.KERNELS,
    **indexing.KERNELS,
    **scattering.KERNELS,
    **products.KERNELS,
    **normalization.KERNELS,
    **convolution.KERNELS,
    **image.KERNELS,
    **recurrent.KERNELS,
    **constants.KERNELS,
}
