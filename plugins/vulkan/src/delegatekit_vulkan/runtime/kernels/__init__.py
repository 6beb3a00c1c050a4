"""What the operators of a blob mean on the device: a file for each family, and the table of all of them."""

from __future__ import annotations

from typing import Final

from ..tape import Kernel
from . import attention, elementwise, normalization, products, reduction, shape

#: Operator -> the function that writes down what a call of it does.
KERNELS: Final[dict[str, Kernel]] = {
    **attention.KERNELS,
    **elementwise.KERNELS,
    **normalization.KERNELS,
    **products.KERNELS,
    **reduction.KERNELS,
    **shape.KERNELS,
}
