"""The backend's support table: the rows of all operator families, the conditions of every operator, the partitioner.

Operators are checked only here; the lowerings rely on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch.fx import Node

from delegatekit_api import Call, ProgramView
from delegatekit_toolkit.constraints import elements
from delegatekit_toolkit.expressions import fixed_numbers
from delegatekit_toolkit.narrowing import INT32_MIN, narrow_constants, wide_number
from delegatekit_toolkit.support import SupportTable, TablePartitioner
from delegatekit_toolkit.symbols import bounded_sizes

from .ir.builder import Lower
from .operators import (
    convolution,
    elementwise,
    factors,
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
    from .options import OpenVINOOptions

_TAKEN: Final = ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")


def device_types(call: Call) -> str | None:
    """Tensors are float32, float16, bfloat16, int32, int64 (computed in 32 bits) or bool; sometimes int8 or uint8.

    Rows with the fact `integers`, those of quantized values, say themselves which types they take.
    """
    for item in () if TABLE.fact(call, "integers") else call.tensors:
        if item.dtype_name not in _TAKEN:
            return f"{item.name} is {item.dtype_name}: OpenVINO does not compute in it"
    return None


def axes(call: Call) -> str | None:
    """Tensors have axes: the stock runtime hands none without axes to OpenVINO. Constants may have none."""
    for item in call.tensors:
        if not item.rank and not item.is_constant:
            return f"{item.name} has no axes, which the stock runtime cannot hand to OpenVINO"
    return None


def above_the_least(call: Call) -> str | None:
    """Constants and numbers of int64 are above -2**31: OpenVINO makes 2**31 - 1 of that one."""
    if not any(item.dtype is torch.int64 for item in call.tensors):
        return None
    for item in call.operands:
        data = item.constant
        if data is not None and data.dtype is torch.int64 and data.numel() and int(data.min()) == INT32_MIN:
            return f"{item.name} has the number {INT32_MIN}, of which OpenVINO makes another in int64"
    for name, number in call.arguments.items():
        if isinstance(number, int) and number == INT32_MIN:
            return f"{name} = {number}, of which OpenVINO makes another in int64"
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
        axes,
        elements(),
        narrow_constants,
        above_the_least,
        factors.finite_numbers,
        factors.finite_products,
        fixed_numbers(lambda call: TABLE.fact(call, "sizes"), "OpenVINO"),
        bounded_sizes,
    ),
    foreign_sizes=True,
)


class OpenVINOPartitioner(TablePartitioner):
    """The table, less what the user leaves out. Raises OptionError for an unknown operator."""

    def __init__(self, options: OpenVINOOptions) -> None:
        super().__init__(TABLE, leave_out=options.leave_out, whole_graph=options.whole_graph, backend="openvino")

    def state_reason(self, program: ProgramView, buffer: Node) -> str | None:
        """The reason why a buffer cannot be a variable of OpenVINO; None if it can."""
        state = program.buffers[buffer]
        kind, initial = str(state.initial.dtype).removeprefix("torch."), state.initial
        if kind not in _TAKEN:
            return f"it is {kind}: OpenVINO does not compute in it"
        if not initial.dim() or not initial.numel():
            return f"it has the shape {tuple(initial.shape)}: variables have axes and elements"
        if (number := wide_number(initial)) is not None:
            return f"it has the number {number}: OpenVINO has 32 bits"
        return "its new value is that of another buffer" if state.updated in program.buffers else None
