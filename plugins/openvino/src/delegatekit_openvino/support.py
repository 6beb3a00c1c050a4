"""The backend's support table: the rows of all operator families, the conditions of every operator, the partitioner.

Operators are checked only here; the lowerings rely on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.constraints import elements
from delegatekit_toolkit.narrowing import narrow_constants
from delegatekit_toolkit.support import SupportTable, TablePartitioner
from delegatekit_toolkit.symbols import is_bounded

from .ir.builder import Lower
from .ir.sizes import is_computable
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
    from .options import OpenVINOOptions

_TAKEN: Final = ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")


def device_types(call: Call) -> str | None:
    """Tensors are float32, float16, bfloat16, int32, int64 (which OpenVINO computes in 32 bits) or bool; some operators
    take int8 and uint8."""
    for item in () if _fact(call, "integers") else call.tensors:
        if item.dtype_name not in _TAKEN:
            return f"{item.name} is {item.dtype_name}: OpenVINO does not compute in it"
    return None


def axes(call: Call) -> str | None:
    """Tensors have axes: the stock runtime hands none without axes to OpenVINO. Constants may have none."""
    for item in call.tensors:
        if not item.rank and not item.is_constant:
            return f"{item.name} has no axes, which the stock runtime cannot hand to OpenVINO"
    return None


def fixed_numbers(call: Call) -> str | None:
    """Number and size arguments do not change from call to call, except those that give a shape."""
    if not call.sizes:
        return None
    taken = _fact(call, "sizes") or ()
    for name, value in call.arguments.items():
        for item in value if isinstance(value, tuple) else (value,):
            if item is None or isinstance(item, Operand | int | float | str) or not hasattr(item, "node"):
                continue
            if name not in taken:
                return f"{name} = {item} changes from call to call"
            if not is_computable(item):
                return f"{name} = {item}: OpenVINO cannot compute this size"
    return None


def bounded_sizes(call: Call) -> str | None:
    """Sizes that change have an upper bound."""
    for operand in call.tensors if call.is_dynamic else ():
        if not all(map(is_bounded, operand.shape)):
            return f"{operand.name} {operand.shape} has a size without an upper bound"
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
    common=(device_types, axes, elements(), narrow_constants, fixed_numbers, bounded_sizes),
    foreign_sizes=True,
)


def _fact(call: Call, name: str) -> Any:
    """A fact of the call's row; None if the row has none of that name."""
    entry = TABLE.get(call.operator)
    return None if entry is None else entry.facts.get(name)


class OpenVINOPartitioner(TablePartitioner):
    """The table, less what the user leaves out. Raises OptionError for an unknown operator."""

    def __init__(self, options: OpenVINOOptions) -> None:
        super().__init__(TABLE, leave_out=options.leave_out, whole_graph=options.whole_graph, backend="openvino")
