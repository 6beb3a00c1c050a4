"""The calls that the backend supports: listed operators on dense CPU tensors of the usual dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from delegatekit_api import Call, Verdict
from delegatekit_toolkit.support import SupportTable, TablePartitioner

from .ir.graph import DTYPES
from .ir.names import UNDEFINED
from .operators import ROWS

if TYPE_CHECKING:
    from collections.abc import Collection

    from .options import ReferenceOptions

_DTYPES: Final = frozenset(getattr(torch, name) for name in DTYPES)


def usual_tensors(call: Call) -> str | None:
    """Values are dense CPU tensors of floats, integers of at most 64 bits, or bools; not complex, not quantized."""
    for item in call.tensors:
        if item.dtype not in _DTYPES:
            return f"{item.name} is {item.dtype}: floats, signed integers, uint8 and bool are taken"
        value = item.value
        if value.device.type not in ("cpu", "meta") or value.layout != torch.strided:
            return f"{item.name} is {value.layout} on {value.device}: dense CPU tensors are taken"
    return None


def tensor_results(call: Call) -> str | None:
    """All results are tensors."""
    value = call.node.meta.get("val")
    for item in value if isinstance(value, tuple | list) else (value,):
        if not isinstance(item, torch.Tensor) and item is not None:
            return f"its result is a {type(item).__name__}: a delegate returns tensors"
    return None


def plain_arguments(call: Call) -> str | None:
    """Arguments are tensors, numbers, strings, dtypes, lists of these; the device is the CPU, the layout strided."""
    return next(filter(None, map(_unwritable, (*call.node.args, *call.node.kwargs.values()))), None)


def _unwritable(argument: Any) -> str | None:
    """The reason why an argument cannot be written; None if it can."""
    if isinstance(argument, list | tuple):
        return next(filter(None, map(_unwritable, argument)), None)
    if isinstance(argument, torch.device):
        return None if argument.type == "cpu" else f"is asked for on device {argument}"
    if isinstance(argument, torch.layout):
        return None if argument == torch.strided else f"is asked for as {argument}"
    if isinstance(argument, torch.dtype):
        return None if argument in _DTYPES else f"an argument is {argument}: floats, signed integers, uint8 and bool"
    written = (bool, int, float, str, torch.memory_format, torch.fx.Node)
    return None if argument is None or isinstance(argument, written) else f"an argument is {argument!r:.60}"


#: All operators that the backend supports.
TABLE: Final = SupportTable(ROWS, common=(usual_tensors, tensor_results, plain_arguments))


class ReferencePartitioner(TablePartitioner):
    """The table's verdicts; for operators that are not in it, reasons from the schema."""

    def __init__(self, options: ReferenceOptions) -> None:
        super().__init__(TABLE, leave_out=options.leave_out, backend="reference")
        self._decompose: Final = options.decompose

    def keep_operators(self) -> Collection[str]:
        """The operators that PyTorch computes in one piece; none if the user wants them decomposed."""
        return frozenset() if self._decompose else super().keep_operators()

    def check(self, call: Call) -> Verdict:
        """The verdict on the call."""
        if call.operator not in TABLE:
            return Verdict.no(usual_tensors(call) or _why_not(call))
        return super().check(call)


def _why_not(call: Call) -> str:
    """The reason for the absence of an operator from the table."""
    name, target = call.operator, call.node.target
    if name in UNDEFINED:
        return f"{name}: its elements are not defined"
    if not isinstance(target, torch._ops.OpOverload):
        return f"{name} is not an operator"
    if target.namespace != "aten":
        return f"{name} is not an ATen operator"
    schema = target._schema
    if torch.Tag.nondeterministic_seeded in target.tags:
        return f"{name} is random"
    if schema.is_mutable:
        return f"{name} writes into its input"
    if any(result.alias_info is not None for result in schema.returns):
        return f"{name} returns a view of its input: only its copying form is taken"
    if {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(target.tags):
        return f"what {name} returns depends on the values in its input"
    return f"{name} is not in the backend's list of operators"
