"""Programs of runtime operators under construction: tensors, calls, views and scratch memory.

>>> from delegatekit_api import TensorSpec
>>> calls = OperatorCalls()
>>> given = calls.input(TensorSpec("int8", (2, 3)))
>>> turned = calls.call("acme::transpose.out", given, (1, 0), calls.scratch(8), result=TensorSpec("int8", (3, 2)))
>>> program = calls.program([calls.view(turned, TensorSpec("int8", (6,)))])
>>> [call.operator for call in program.calls]
['acme::transpose.out', 'aten::clone.out']
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from delegatekit_api import LoweringError, TensorSpec
from delegatekit_api.nodes import describe_node, is_dynamic
from delegatekit_api.operators import Argument, OperatorCall, OperatorProgram, RuntimeTensor

from .content import storage_key
from .dtypes import dtype_name

if TYPE_CHECKING:
    import torch
    from torch.fx import Node


def spec_of(node: Node) -> TensorSpec:
    """The spec of a node's value: the largest sizes, where they change from call to call.

    Raises LoweringError for a size without an upper bound.
    """
    value = node.meta["val"]
    shape = tuple(value.shape)
    if is_dynamic(value):
        from .symbols import most

        largest = tuple(map(most, shape))
        if None in largest:
            raise LoweringError(f"sizes {shape} have no upper bound", where=describe_node(node))
        shape = largest
    return TensorSpec(dtype_name(value.dtype), shape, is_dynamic(value))


class OperatorCalls:
    """The calls of a partition, in order. `debug_handles` are those of the next ones."""

    def __init__(self) -> None:
        self.debug_handles: tuple[int, ...] = ()
        self._inputs: Final[list[RuntimeTensor]] = []
        self._calls: Final[list[OperatorCall]] = []
        self._scratch: Final[set[RuntimeTensor]] = set()
        self._constants: Final[dict[object, RuntimeTensor]] = {}
        self._results: Final[set[RuntimeTensor]] = set()

    def input(self, spec: TensorSpec) -> RuntimeTensor:
        """The partition's next input."""
        tensor = RuntimeTensor(spec)
        self._inputs.append(tensor)
        return tensor

    def constant(self, data: torch.Tensor) -> RuntimeTensor:
        """A constant; the same storage gives the same one."""
        data = data.detach().contiguous()
        spec = TensorSpec(dtype_name(data.dtype), tuple(data.shape))
        return self._constants.setdefault(storage_key(data), RuntimeTensor(spec, data))

    def scratch(self, size: int) -> RuntimeTensor:
        """Memory of this many bytes for the next call alone."""
        tensor = RuntimeTensor(TensorSpec("uint8", (size,)))
        self._scratch.add(tensor)
        return tensor

    def view(self, tensor: RuntimeTensor, spec: TensorSpec) -> RuntimeTensor:
        """The bytes of a tensor under other sizes; those of a constant are its elements."""
        if tensor.spec == spec:
            return tensor
        if tensor.data is not None and not spec.dim_order:
            return RuntimeTensor(spec, tensor.data.reshape(spec.shape))
        return RuntimeTensor(spec, view_of=tensor)

    def call(self, operator: str, *arguments: Argument, result: TensorSpec) -> RuntimeTensor:
        """The result of a call with these arguments, scratch memory included."""
        made = RuntimeTensor(result)
        scratch = tuple(item for item in arguments if isinstance(item, RuntimeTensor) and item in self._scratch)
        self._calls.append(OperatorCall(operator, arguments, (made,), scratch, self.debug_handles))
        self._results.add(made)
        return made

    def program(self, outputs: Iterable[RuntimeTensor]) -> OperatorProgram:
        """The finished program. An output that is not the result of a call of its own is copied to be one."""
        found: list[RuntimeTensor] = []
        for tensor in outputs:
            own = tensor in self._results and tensor not in found
            found.append(tensor if own else self.call("aten::clone.out", tensor, None, result=tensor.spec))
        return OperatorProgram(tuple(self._inputs), tuple(self._calls), tuple(found))
