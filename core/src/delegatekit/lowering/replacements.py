"""Partitions of backends that are libraries of operators: each becomes calls of these, which are checked here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from delegatekit_api import PartitionProgram, PluginError
from delegatekit_api.operators import OperatorCall, OperatorProgram, RuntimeNumber, RuntimeTensor
from delegatekit_toolkit.operator_flow import faults
from delegatekit_toolkit.operator_programs import spec_of

from ..partition import Partition
from ..plugins import check_answer
from ..pte import schema
from ..pte.kernels import runtime_operators
from ..pte.signatures import Signature, declared, signature
from .delegates import ChosenBackend, Replacement

_LISTS: Final = {bool: schema.BoolList, int: schema.IntList, float: schema.DoubleList, RuntimeTensor: schema.TensorList}
_ITEMS: Final = {
    bool: schema.Bool,
    int: schema.Int,
    float: schema.Double,
    str: schema.String,
    type(None): schema.Null,
    RuntimeNumber: schema.Int,
    RuntimeTensor: schema.Tensor,
}


def replacement(step: Partition, program: PartitionProgram, chosen: ChosenBackend, where: str) -> Replacement:
    """Have a backend replace a partition.

    Raises what the plugin raises, and PluginError for an answer that violates the API.
    """
    answer = chosen.backend.replace_operators(program, chosen.options)
    check_answer(answer, OperatorProgram, "what replace_operators returned", where)
    operators = _operators(chosen)
    fault = next(_faults(answer, program, operators), None)
    if fault is not None:
        raise PluginError(f"what replace_operators returned: {fault}", where=where)
    return Replacement(step, chosen, answer)


def table_kind(value: Any) -> type:
    """The kind of table that an argument becomes in the file."""
    if not isinstance(value, tuple):
        return _ITEMS.get(type(value), object)
    kinds = {type(item) for item in value}
    if len(kinds) > 1:
        return schema.OptionalTensorList if kinds == {RuntimeTensor, type(None)} else object
    return _LISTS.get(kinds.pop(), object) if kinds else schema.IntList


def _operators(chosen: ChosenBackend) -> Mapping[str, Signature]:
    """The signatures of the backend's own operators by name."""
    backend = chosen.backend
    try:
        found = declared(backend.runtime_operators())
    except RuntimeError as error:
        raise PluginError(f"runtime_operators has no schema but {error}", where=backend.where) from None
    namespace = f"{backend.description.delegate_id}::"
    for name in found:
        if not name.startswith(namespace):
            raise PluginError(f"runtime_operators has {name}, which is not in {namespace}", where=backend.where)
    return found


def _faults(answer: OperatorProgram, program: PartitionProgram, operators: Mapping[str, Signature]) -> Iterator[str]:
    """Faults that the types do not express."""
    for number, call in enumerate(answer.calls):
        yield from (f"calls[{number}] ({call.operator}) {fault}" for fault in _call_faults(call, operators))
    view = program.view
    yield from faults(answer, [*map(spec_of, view.inputs)], [*map(spec_of, filter(None, view.outputs))])


def _call_faults(call: OperatorCall, operators: Mapping[str, Signature]) -> Iterator[str]:
    found = operators.get(call.operator) or (signature(call.operator) if call.operator in runtime_operators() else None)
    if found is None:
        yield "is neither in runtime_operators nor an operator of the runtime"
        return
    given = (*call.arguments, *call.results)
    if len(given) != len(found.kinds) - 1 or not call.results:
        yield f"has {len(given)} arguments and results, not {len(found.kinds) - 1}"
        return
    for place, (value, kinds) in enumerate(zip(given, found.kinds, strict=False)):
        if table_kind(value) not in kinds:
            yield f"argument {place} is {value!r:.60}, not {' or '.join(kind.__name__ for kind in kinds)}"
