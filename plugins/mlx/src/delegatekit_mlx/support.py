"""The backend's support table: the rows of all operator families, the conditions of every operator, the partitioner.

Operators are checked only here; the lowerings rely on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torch.fx import Node

from delegatekit_api import Call, ProgramView
from delegatekit_toolkit.constraints import elements
from delegatekit_toolkit.expressions import fixed_numbers
from delegatekit_toolkit.support import SupportTable, TablePartitioner
from delegatekit_toolkit.symbols import bounded_sizes

from .ir.builder import Lower
from .operators import (
    convolution,
    elementwise,
    functions,
    indexing,
    linear,
    normalization,
    pooling,
    quantization,
    reduction,
    resizing,
    scattering,
    shape,
    sorting,
)

if TYPE_CHECKING:
    from .options import MLXOptions

_TAKEN: Final = ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")


def device_types(call: Call) -> str | None:
    """Tensors are float32, float16, bfloat16, int8, uint8, int32, int64 or bool: Apple's GPUs have no float64."""
    for item in call.tensors:
        if item.dtype_name not in _TAKEN:
            return f"{item.name} is {item.dtype_name}, which MLX does not have on Apple's GPUs"
    return None


TABLE: Final[SupportTable[Lower]] = SupportTable(
    [
        *elementwise.ROWS,
        *functions.ROWS,
        *reduction.ROWS,
        *sorting.ROWS,
        *shape.ROWS,
        *indexing.ROWS,
        *linear.ROWS,
        *normalization.ROWS,
        *convolution.ROWS,
        *pooling.ROWS,
        *resizing.ROWS,
        *scattering.ROWS,
        *quantization.ROWS,
    ],
    common=(
        device_types,
        elements(),
        fixed_numbers(lambda call: TABLE.fact(call, "sizes"), "MLX"),
        bounded_sizes,
    ),
    foreign_sizes=True,
)


class MLXPartitioner(TablePartitioner):
    """The table, less what the user leaves out. Raises OptionError for an unknown operator."""

    def __init__(self, options: MLXOptions) -> None:
        super().__init__(TABLE, leave_out=options.leave_out, whole_graph=options.whole_graph, backend="mlx")

    def state_reason(self, program: ProgramView, buffer: Node) -> str | None:
        """The reason why a buffer cannot be kept by the delegate; None if it can."""
        initial = program.buffers[buffer].initial
        kind = str(initial.dtype).removeprefix("torch.")
        if kind not in _TAKEN:
            return f"it is {kind}, which MLX does not have on Apple's GPUs"
        return None if initial.numel() else f"it has no elements, {tuple(initial.shape)}"
