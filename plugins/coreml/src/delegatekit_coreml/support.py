"""The backend's support table: the rows of all operator families, the conditions of every operator, the partitioner.

Operators are checked only here; the lowerings rely on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from delegatekit_api import Call, OptionError, ProgramView, Verdict
from delegatekit_api.documentation import BackendDocumentation, OperatorTable
from delegatekit_toolkit.constraints import elements, max_rank
from delegatekit_toolkit.expressions import fixed_numbers
from delegatekit_toolkit.fewer_axes import FewerAxes
from delegatekit_toolkit.narrowing import narrow_constants
from delegatekit_toolkit.operator_tables import operator_table
from delegatekit_toolkit.support import SupportTable, TablePartitioner, leavable_names
from delegatekit_toolkit.symbols import bounded_sizes

from .ir.types import MOST_AXES
from .operators import (
    convolution,
    elementwise,
    floats,
    functions,
    indexing,
    linear,
    normalization,
    quantization,
    recurrent,
    reduction,
    resizing,
    sampling,
    scattering,
    shape,
    sorting,
    spatial,
    tables,
)
from .operators.compression import check_compression
from .operators.interface import state_fault
from .operators.program import Lower
from .targets import IOS15, TARGETS, Target

if TYPE_CHECKING:
    from torch.fx import Node

    from .options import CoreMLOptions

#: The types of computations; int64 is narrowed.
_TAKEN: Final = ("float32", "float16", "int32", "int64", "bool")


def device_types(call: Call) -> str | None:
    """Tensors are float32, float16, int32, int64 (which the delegate narrows to 32 bits) or bool."""
    if TABLE.fact(call, "integers") or TABLE.fact(call, "tables"):
        return None
    for item in call.tensors:
        if item.dtype_name == "float64":
            return f"{item.name} is float64: Core ML computes in 32 bits, and the digits would be lost"
        if item.dtype_name not in _TAKEN:
            return f"{item.name} is {item.dtype_name}: float32, float16, int32, int64 and bool are taken"
    return None


_few_axes: Final = max_rank(MOST_AXES)


def few_axes(call: Call) -> str | None:
    """Tensors have at most 5 axes."""
    return None if TABLE.fact(call, "tables") else _few_axes(call)


TABLE: Final[SupportTable[Lower]] = SupportTable(
    [
        *elementwise.ROWS,
        *floats.ROWS,
        *functions.ROWS,
        *reduction.ROWS,
        *sorting.ROWS,
        *shape.ROWS,
        *indexing.ROWS,
        *scattering.ROWS,
        *linear.ROWS,
        *normalization.ROWS,
        *convolution.ROWS,
        *spatial.ROWS,
        *resizing.ROWS,
        *sampling.ROWS,
        *recurrent.ROWS,
        *quantization.ROWS,
        *tables.ROWS,
    ],
    common=(
        device_types,
        few_axes,
        elements(),
        narrow_constants,
        fixed_numbers(lambda call: TABLE.fact(call, "sizes"), "Core ML"),
        bounded_sizes,
    ),
)


def oldest_target(call: Call) -> Target:
    """The oldest target that supports a call."""
    found: Any = TABLE.fact(call, "since") or IOS15
    return found if isinstance(found, Target) else cast(Target, found(call))


#: Where the form of a call decides: the targets from which on there are the forms.
_BY_FORM: Final[dict[Any, str]] = {
    quantization.oldest_form: "by form: constants ios16 (int4 and groups: ios18), values ios17",
    tables.oldest_form: "by form: one table for a weight ios16 (of 3 bits: ios18), several ios18",
}


def _documented_target(operator: str) -> str:
    """The oldest target of an operator, in words."""
    found: Any = TABLE[operator].facts.get("since", IOS15)
    return found.name if isinstance(found, Target) else _BY_FORM[found]


def documentation() -> BackendDocumentation:
    """The operators and their conditions, with a column for the targets from which on they are taken."""
    table = operator_table({"conditions": TABLE})
    entries = tuple(
        replace(entry, conditions=(*entry.conditions, _documented_target(entry.operator))) for entry in table.entries
    )
    return BackendDocumentation(OperatorTable(entries, (*table.columns, "from"), table.common))


def _check_operators(names: frozenset[str]) -> None:
    """Raise OptionError for a name that matches none of the table's operators."""
    known = frozenset().union(*map(leavable_names, TABLE))
    for name in sorted(names):
        if name not in known:
            raise OptionError(
                f"float32_operators names {name!r}, which is not an operator that the backend takes",
                where="option of backend coreml",
                hint="names look like aten._softmax.default, aten._softmax or _softmax",
            )


#: Operators on more axes than the device has are written on fewer.
PASSES: Final = (FewerAxes(MOST_AXES),)


class CoreMLPartitioner(TablePartitioner):
    """The table, narrowed by the user's options. Raises OptionError for an unknown operator in one of them."""

    def __init__(self, options: CoreMLOptions) -> None:
        super().__init__(TABLE, leave_out=options.leave_out, whole_graph=options.whole_graph, backend="coreml")
        _check_operators(options.float32_operators)
        check_compression(options)
        self._options = options
        self._target = TARGETS[options.target]

    def state_reason(self, program: ProgramView, buffer: Node) -> str | None:
        """The reason why a buffer cannot be a state of the delegate; None if it can."""
        return state_fault(program, buffer, self._options)

    def special_values(self, call: Call) -> str:
        """The table's special values, and the effect of the precision."""
        said = super().special_values(call)
        if self._options.precision == "float16" and any(item.dtype.is_floating_point for item in call.tensors):
            said = "; ".join(filter(None, (said, "with precision=float16 numbers beyond 65504 are infinite")))
        return said

    def check(self, call: Call) -> Verdict:
        """The table's verdict, and a check that the deployment target has the operator."""
        verdict = super().check(call)
        if not verdict.supported:
            return verdict
        if (oldest := oldest_target(call)) > self._target:
            return Verdict.no(f"{call.operator} needs {oldest.name}: the target is {self._target.name}")
        if TABLE.fact(call, "integers"):
            return replace(verdict, group=quantization.unit_of(call))
        return verdict
