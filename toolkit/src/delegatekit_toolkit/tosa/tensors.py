"""Parts of a TOSA graph: tensors, and operations on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .operators import Operator
from .types import Array, DType


@dataclass(eq=False)
class Tensor:
    """A dense tensor. With `data` it is a constant; `data` has the shape `shape`."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    data: Array | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(eq=False)
class Operation:
    """One operator with its operands and its result."""

    operator: Operator
    inputs: tuple[Tensor, ...]
    output: Tensor
