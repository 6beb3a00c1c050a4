"""Writes the partitions of backends that are libraries of operators: a kernel call for each call of the program."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from delegatekit_api.operators import OperatorCall, RuntimeNumber, RuntimeTensor

from ..lowering import Replacement
from ..lowering.replacements import table_kind
from ..pte import schema
from .instructions import Origin
from .writer import Writer


def write_replacement(writer: Writer, step: Replacement) -> None:
    """Write the calls of a partition."""
    work, nodes = _Work(writer, step), step.partition.nodes
    sources = {node.meta["debug_handle"]: node for node in reversed(nodes)}
    for call in step.program.calls:
        writer.begin()
        writer.code.origin = Origin(call.debug_handles, next(map(sources.get, call.debug_handles), nodes[0]))
        work.write(call)


class _Work:
    def __init__(self, writer: Writer, step: Replacement) -> None:
        self._values = writer.values
        self._code = writer.code
        self._place = step.partition.nodes[0]
        self._keys: dict[RuntimeTensor, Any] = dict(zip(step.program.inputs, step.partition.inputs, strict=True))
        self._outputs = dict(zip(step.program.outputs, step.partition.outputs, strict=True))

    def write(self, call: OperatorCall) -> None:
        """Write one call."""
        arguments = list(map(self._argument, call.arguments))
        results = list(map(self._made, call.results))
        returned = results[0] if len(results) == 1 else self._values.list(schema.TensorList, results)
        name, _, overload = call.operator.partition(".")
        self._code.kernel(name, overload, [*arguments, *results, returned])

    def _argument(self, value: Any) -> int:
        if isinstance(value, RuntimeTensor):
            return self._used(value)
        if isinstance(value, RuntimeNumber):
            number = self._values.number(0)
            self._code.kernel("aten::_local_scalar_dense", "", [self._used(value.tensor), number])
            return number
        if not isinstance(value, tuple):
            return self._values.literal(value)
        kind = table_kind(value)
        if kind in (schema.TensorList, schema.OptionalTensorList):
            return self._values.list(kind, [-1 if item is None else self._used(item) for item in value])
        return self._values.list(
            kind, list(map(self._values.literal, value)) if kind is schema.IntList else list(value)
        )

    def _used(self, tensor: RuntimeTensor) -> int:
        if tensor.data is not None:
            return self._values.constant((self._place, tensor), tensor.data)
        if tensor not in self._keys:  # a view, or scratch memory
            return self._made(tensor)
        return self._values.used(self._keys[tensor])

    def _made(self, tensor: RuntimeTensor) -> int:
        """A planned value for a tensor: in memory of its own, or in that of the tensor which it is a view of."""
        shares = None
        if tensor.view_of is not None:
            shares = self._values.home(self._used(tensor.view_of))
            assert shares is not None  # no view of a constant
        key = self._keys[tensor] = self._outputs.get(tensor, (self._place, tensor))
        spec = tensor.spec
        own = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")
        value = key.meta["val"] if isinstance(key, Node) else own  # the sizes of an output may change
        index = self._values.planned(key, value, shares)
        if spec.dim_order:
            self._values.tensor(index).dim_order = bytes(spec.dim_order)
        return index
