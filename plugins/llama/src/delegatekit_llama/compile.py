"""Replaces a partition by calls of the runtime's operators."""

from __future__ import annotations

from torch.fx import Node

from delegatekit_api import LoweringError, Operand, PartitionProgram
from delegatekit_api.operators import OperatorProgram, RuntimeTensor
from delegatekit_toolkit.operator_programs import OperatorCalls, spec_of

from .options import LlamaOptions
from .support import TABLE


def replace_partition(partition: PartitionProgram, options: LlamaOptions) -> OperatorProgram:
    """The calls that compute a partition. Raises LoweringError for operators that the support table refuses."""
    view, calls = partition.view, OperatorCalls()
    tensors: dict[Node, RuntimeTensor] = {node: calls.input(spec_of(node)) for node in view.inputs}
    tensors.update({node: calls.constant(data) for node, data in view.constants.items()})
    for call in view.calls():
        if call.operator not in TABLE:
            raise LoweringError("the backend has no lowering for this operator", where=call.description)
        calls.debug_handles = () if call.debug_handle is None else (call.debug_handle,)
        given = {name: tensors[item.node] for name, item in call.arguments.items() if isinstance(item, Operand)}
        tensors[call.node] = TABLE[call.operator].lower(calls, call, given)
    return calls.program(tensors[node] for node in view.outputs if node is not None)
