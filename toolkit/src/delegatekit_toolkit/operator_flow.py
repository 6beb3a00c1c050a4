"""Faults in the flow of values through a program of runtime operators, which its types do not express."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from delegatekit_api import TensorSpec
from delegatekit_api.operators import OperatorCall, OperatorProgram, RuntimeNumber, RuntimeTensor

from .dtypes import dtype_name

if TYPE_CHECKING:
    import torch


def faults(program: OperatorProgram, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Iterator[str]:
    """The faults of a program that is called with inputs and outputs of these specs, a sentence each.

    Each tensor that a call reads must be an input, an earlier result, a constant that is what its spec says, or memory
    of the call alone; each result is written once; the outputs are distinct results.
    """
    for what, tensors, wanted in (("inputs", program.inputs, inputs), ("outputs", program.outputs, outputs)):
        if [tensor.spec for tensor in tensors] != [*wanted]:
            yield f"{what} are {[tensor.spec for tensor in tensors]}, not {[*wanted]}"
    known = set(program.inputs)
    made: set[RuntimeTensor] = set()
    for number, call in enumerate(program.calls):
        yield from (f"calls[{number}] ({call.operator}) {fault}" for fault in _reading(call, known))
        if not known.isdisjoint(call.results) or any(item.data is not None for item in call.results):
            yield f"calls[{number}] ({call.operator}) writes a tensor that has its elements already"
        known.update(call.results)
        made.update(call.results)
    if not made.issuperset(program.outputs) or len(set(program.outputs)) < len(program.outputs):
        yield "outputs are not distinct results of calls"


def _reading(call: OperatorCall, known: Collection[RuntimeTensor]) -> Iterator[str]:
    for value in call.arguments:
        for item in value if isinstance(value, tuple) else (value,):
            tensor = item.tensor if isinstance(item, RuntimeNumber) else item
            if isinstance(tensor, RuntimeTensor) and (fault := _unreadable(tensor, known, call.scratch)):
                yield f"reads {tensor.spec}, {fault}"


def _unreadable(
    tensor: RuntimeTensor, known: Collection[RuntimeTensor], scratch: Collection[RuntimeTensor]
) -> str | None:
    if tensor in known or tensor in scratch:
        return None
    if tensor.view_of is not None:
        return _unreadable(tensor.view_of, known, ()) or (
            None if tensor.view_of.data is None else "a view of a constant"
        )
    if tensor.data is None:
        return "which nothing has computed"
    data = tensor.data
    return None if _is_as_told(data, tensor.spec) else f"a constant of {data.dtype}, {tuple(data.shape)}"


def _is_as_told(data: torch.Tensor, spec: TensorSpec) -> bool:
    is_plain = str(data.layout) == "torch.strided" and data.device.type == "cpu" and data.is_contiguous()
    return is_plain and (dtype_name(data.dtype), tuple(data.shape)) == (spec.dtype, tuple(spec.shape))
