"""Partitions of backends that are libraries of operators: each becomes calls of these, which are checked here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from delegatekit_api import PartitionProgram, PluginError, TensorSpec
from delegatekit_api.operators import OperatorCall, OperatorProgram, RuntimeTensor
from delegatekit_toolkit.dtypes import dtype_name

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
    view = program.view
    for what, tensors, nodes in (("inputs", answer.inputs, view.inputs), ("outputs", answer.outputs, view.outputs)):
        wanted = [_spec(node) for node in nodes]
        if [tensor.spec for tensor in tensors] != wanted:
            yield f"{what} are {[tensor.spec for tensor in tensors]}, not {wanted}"
    known = set(answer.inputs)
    made: set[RuntimeTensor] = set()
    for number, call in enumerate(answer.calls):
        for fault in _call_faults(call, operators, known):
            yield f"calls[{number}] ({call.operator}) {fault}"
        if not known.isdisjoint(call.results) or any(item.data is not None for item in call.results):
            yield f"calls[{number}] ({call.operator}) writes a tensor that has its elements already"
        known.update(call.results)
        made.update(call.results)
    if not made.issuperset(answer.outputs) or len(set(answer.outputs)) < len(answer.outputs):
        yield "outputs are not distinct results of calls"


def _call_faults(call: OperatorCall, operators: Mapping[str, Signature], known: set[RuntimeTensor]) -> Iterator[str]:
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
    for value in call.arguments:
        for tensor in value if isinstance(value, tuple) else (value,):
            if isinstance(tensor, RuntimeTensor) and (fault := _tensor_fault(tensor, known, call.scratch)):
                yield f"reads {tensor.spec}, {fault}"


def _tensor_fault(tensor: RuntimeTensor, known: set[RuntimeTensor], scratch: tuple[RuntimeTensor, ...]) -> str | None:
    if tensor in known or tensor in scratch:
        return None
    if tensor.view_of is not None:
        return _tensor_fault(tensor.view_of, known, ()) or (
            None if tensor.view_of.data is None else "a view of a constant"
        )
    if tensor.data is None:
        return "which nothing has computed"
    data, spec = tensor.data, tensor.spec
    is_plain = data.layout == torch.strided and data.device.type == "cpu" and data.is_contiguous()
    fits = is_plain and (dtype_name(data.dtype), tuple(data.shape)) == (spec.dtype, tuple(spec.shape))
    return None if fits else f"a constant of {data.dtype}, {tuple(data.shape)}"


def _spec(node: Any) -> TensorSpec:
    value = node.meta["val"]
    return TensorSpec(dtype_name(value.dtype), tuple(value.shape))
