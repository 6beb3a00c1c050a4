"""Writes lowered methods as execution plans: values, memory, operators, delegates and instructions."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from delegatekit_api import LoweringError, NamedData, UnsupportedError, describe_node

from ..lowering import Delegate, LoweredMethod
from ..manifest import MANIFEST_KEY
from ..pte import PteImage, schema
from ..pte.dtypes import scalar_type
from .memory import Request, plan_memory
from .variants import require_kernel

aten = torch.ops.aten

#: Views of a contiguous value that are the same bytes under other sizes.
_SAME_BYTES = frozenset({aten.view_copy.default, aten.squeeze_copy.dims, aten.unsqueeze_copy.default})


def emit(methods: Mapping[str, LoweredMethod], producer: str) -> PteImage:
    """Assemble the file's image. `producer` is "delegatekit 0.1.0". Weights stay where they are.

    Raises UnsupportedError, with the user's source line, for an operator that nobody can run.
    """
    shared = _Shared()
    plans = tuple(_MethodEmitter(method, shared).plan() for method in methods.values())
    owners = [
        {
            "method": name,
            "index": index,
            "distribution": delegate.chosen.backend.distribution,
            "version": delegate.chosen.backend.version,
            "api": str(delegate.chosen.backend.description.api_version),
        }
        for name, method in methods.items()
        for index, delegate in enumerate(method.delegates)
    ]
    manifest = json.dumps({"producer": producer, "delegates": owners}, sort_keys=True).encode()
    return PteImage(
        plans=plans,
        constants=tuple(shared.constants),
        mutable_state=tuple(shared.mutable_state),
        delegate_blobs=tuple(shared.blobs),
        named_data=(*shared.named_data, NamedData(MANIFEST_KEY, manifest)),
    )


@dataclass
class _Shared:
    """What the methods of a file store together."""

    constants: list[torch.Tensor] = field(default_factory=list)
    mutable_state: list[torch.Tensor] = field(default_factory=list)
    blobs: list[Sequence[bytes | bytearray | memoryview]] = field(default_factory=list)
    named_data: list[NamedData] = field(default_factory=list)
    _index: dict[Any, int] = field(default_factory=dict)

    def constant(self, tensor: torch.Tensor) -> int:
        """The data_buffer_idx of a constant: counted from 1; the same storage gives the same number."""
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if key not in self._index or tensor.numel() == 0:
            self.constants.append(tensor)
            self._index[key] = len(self.constants)
        return self._index[key]

    def state(self, tensor: torch.Tensor) -> int:
        """The data_buffer_idx of a mutable buffer's initial value."""
        self.mutable_state.append(tensor)
        return len(self.mutable_state)


@dataclass(eq=False)
class _Storage:
    """One planned piece of memory and when it is in use; views of a value share it."""

    size: int
    first: int
    last: int
    tensors: list[schema.Tensor]


class _MethodEmitter:
    """Builds one execution plan. Each method below writes one of its parts."""

    def __init__(self, method: LoweredMethod, shared: _Shared) -> None:
        self.method = method
        self.shared = shared
        self.values: list[schema.EValue] = []
        self.index: dict[Any, int] = {}  # node, or (node, result number), or a literal's key -> value index
        self.storage: dict[Any, _Storage] = {}  # node or (node, result number) -> memory
        self.operators: dict[str, int] = {}
        self.operator_tables: list[schema.Operator] = []
        self.delegates: list[schema.BackendDelegate] = []
        self.instructions: list[schema.Instruction] = []
        self.step = 0
        self.returned = {item for item in method.edge.outputs if isinstance(item, Node)}

    def plan(self) -> schema.ExecutionPlan:
        edge = self.method.edge
        inputs = [self._input(node) for node in edge.inputs]
        for node in edge.buffers:
            self._buffer(node)
        for step in self.method.steps:
            self.step = len(self.instructions) + 1
            if isinstance(step, Delegate):
                self._delegate_call(step)
            else:
                self._operator_call(step)
        updates = {node: self._before_write_back(buffer.updated) for node, buffer in edge.buffers.items()}
        outputs = [self._output(self._before_write_back(item)) for item in edge.outputs]
        self._write_back(updates)
        return schema.ExecutionPlan(
            name=edge.name,
            container_meta_type=schema.ContainerMetadata(edge.input_structure, edge.output_structure),
            values=self.values,
            inputs=inputs,
            outputs=outputs,
            chains=[schema.Chain(inputs=[], outputs=[], instructions=self.instructions)],
            operators=self.operator_tables,
            delegates=self.delegates,
            non_const_buffer_sizes=[0, self._plan_memory()],
        )

    # -- inputs, buffers, outputs --------------------------------------------------------------------------------

    def _input(self, node: Node) -> int:
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return self._literal_value(value)
        return self._planned(node, value)

    def _buffer(self, node: Node) -> None:
        buffer = self.method.edge.buffers[node]
        index = self._planned(node, node.meta["val"])
        tensor = self._tensor(index)
        tensor.data_buffer_idx = self.shared.state(buffer.initial)
        tensor.extra_tensor_info = schema.ExtraTensorInfo(fully_qualified_name=buffer.name)
        self.storage[node].last = _FOREVER

    def _output(self, item: Any) -> int:
        """The index of an output: a node, the key of a kept value, or a literal."""
        if not isinstance(item, Node) and item not in self.storage:
            return self._literal_value(item)
        self.step = len(self.instructions) + 1
        index = self._value(item)
        if item in self.storage:
            self.storage[item].last = _FOREVER
        return index

    def _before_write_back(self, item: Any) -> Any:
        """The key of a value that keeps what `item` is now, although buffers are about to change.

        A buffer itself, returned or copied into another buffer, is the one value that does not stay as it is.
        """
        if not isinstance(item, Node) or self.storage.get(item) not in self._buffer_storages():
            return item
        key = (item, "kept")
        if key not in self.index:
            self.step = len(self.instructions) + 1
            source = self._value(item)
            kept = self._planned(key, item.meta["val"])
            self._kernel("aten::clone", "out", [source, self._literal_value(None), kept, kept])
        return key

    def _buffer_storages(self) -> list[_Storage]:
        return [self.storage[node] for node in self.method.edge.buffers]

    def _write_back(self, updates: Mapping[Node, Any]) -> None:
        """Copy the new values of mutable buffers into them, behind everything that reads the old ones."""
        for node, updated in updates.items():
            self.step = len(self.instructions) + 1
            target = self._value(node)
            arguments = [target, self._value(updated), self._literal_value(False), target]
            self._kernel("aten::copy_", "", arguments)

    # -- values --------------------------------------------------------------------------------------------------

    def _add(self, value: Any) -> int:
        self.values.append(schema.EValue(value))
        return len(self.values) - 1

    def _tensor(self, index: int) -> schema.Tensor:
        tensor = self.values[index].val
        assert isinstance(tensor, schema.Tensor)
        return tensor

    def _planned(self, key: Any, value: torch.Tensor, shares: _Storage | None = None) -> int:
        """A tensor in the arena: in memory of its own, or in `shares`."""
        tensor = _tensor_table(value)
        self.index[key] = self._add(tensor)
        if shares is None:
            size = value.numel() * value.element_size()
            shares = _Storage(size, self.step, self.step, [])
        shares.tensors.append(tensor)
        self.storage[key] = shares
        return self.index[key]

    def _value(self, node: Any) -> int:
        """The index of a node's value, which is in use at the current step."""
        if node in self.storage:
            self.storage[node].last = max(self.storage[node].last, self.step)
        known = self.index.get(node)
        if known is not None:
            return known
        constant = self.method.edge.constants.get(node)
        if constant is None:
            raise LoweringError("is used before it is computed: this is a fault of DelegateKit", where=str(node))
        tensor = _tensor_table(constant)
        tensor.data_buffer_idx = self.shared.constant(constant)
        self.index[node] = self._add(tensor)
        return self.index[node]

    def _literal_value(self, value: Any) -> int:
        """The index of a number, text or None; equal ones of one type share a value."""
        key = ("literal", type(value), repr(value))
        if key not in self.index:
            self.index[key] = self._add(_literal_table(value))
        return self.index[key]

    def _list_value(self, kind: type, items: list[Any]) -> int:
        key = ("list", kind, repr(items))
        if key not in self.index:
            self.index[key] = self._add(kind(items))
        return self.index[key]

    # -- instructions --------------------------------------------------------------------------------------------

    def _kernel(self, name: str, overload: str, arguments: list[int]) -> None:
        full_name = f"{name}.{overload}"
        if full_name not in self.operators:
            self.operators[full_name] = len(self.operator_tables)
            self.operator_tables.append(schema.Operator(name, overload))
        call = schema.KernelCall(self.operators[full_name], arguments)
        self.instructions.append(schema.Instruction(call))

    def _operator_call(self, node: Node) -> None:
        if node.target is operator.getitem:
            source: Any = (node.args[0], node.args[1])
            self.index[node], self.storage[node] = self.index[source], self.storage[source]
            return
        if node.target in _SAME_BYTES and node.args[0] in self.storage and node not in self.returned:
            base: Any = node.args[0]
            self._planned(node, node.meta["val"], shares=self.storage[base])
            self._value(base)
            return
        variant = require_kernel(node)
        schema_arguments = variant.target._schema.arguments
        given = dict(zip((argument.name for argument in node.target._schema.arguments), node.args, strict=False))  # type: ignore[union-attr]
        given.update(node.kwargs)
        arguments = [
            self._argument(node, argument, given.get(argument.name, argument.default_value))
            for argument in schema_arguments
            if not argument.is_out
        ]
        self._kernel(variant.name, variant.overload, [*arguments, *self._results(node)])

    def _results(self, node: Node) -> list[int]:
        """Values for what the operator writes, and how a kernel call repeats them behind its arguments."""
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            index = self._planned(node, value)
            return [index, index]
        results = [self._planned((node, number), result) for number, result in enumerate(value)]
        return [*results, self._list_value(schema.TensorList, results)]

    def _argument(self, node: Node, argument: Any, value: Any) -> int:
        """One argument of a kernel call as the schema's type wants it."""
        if value is None:
            return self._literal_value(None)
        if isinstance(value, Node):
            return self._value(value)
        if isinstance(value, torch.dtype):
            return self._literal_value(int(scalar_type(value)))
        if isinstance(value, torch.layout):
            return self._literal_value(0)
        if isinstance(value, torch.memory_format):
            return self._literal_value(0 if value == torch.contiguous_format else 1)
        if isinstance(value, torch.device):
            return self._literal_value(None)
        if isinstance(value, str | bool):
            return self._literal_value(value)
        if isinstance(value, int | float):
            text = str(argument.type)
            if "List" in text:
                return self._sequence(node, argument, [value])
            return self._literal_value(float(value) if "float" in text else value)
        if isinstance(value, list | tuple):
            return self._sequence(node, argument, list(value))
        raise UnsupportedError(
            f"argument {argument.name} = {value!r} has no form in the file", where=describe_node(node)
        )

    def _sequence(self, node: Node, argument: Any, items: list[Any]) -> int:
        text = str(argument.type)
        if "Tensor" in text:
            if "Optional[Tensor]" in text:
                indices = [-1 if item is None else self._value(item) for item in items]
                return self._list_value(schema.OptionalTensorList, indices)
            return self._list_value(schema.TensorList, [self._value(item) for item in items])
        if "bool" in text:
            return self._list_value(schema.BoolList, [bool(item) for item in items])
        if "float" in text:
            return self._list_value(schema.DoubleList, [float(item) for item in items])
        return self._list_value(schema.IntList, [self._literal_value(int(item)) for item in items])

    def _delegate_call(self, delegate: Delegate) -> None:
        inputs = [self._value(node) for node in delegate.partition.inputs]
        outputs = [self._planned(node, node.meta["val"]) for node in delegate.partition.outputs]
        self.delegates.append(
            schema.BackendDelegate(
                id=delegate.chosen.backend.description.delegate_id,
                processed=schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, len(self.shared.blobs)),
                compile_specs=[schema.CompileSpec(spec.key, spec.value) for spec in delegate.compile_specs],
            )
        )
        self.shared.blobs.append(delegate.blob)
        self.shared.named_data.extend(delegate.named_data)
        call = schema.DelegateCall(len(self.delegates) - 1, [*inputs, *outputs])
        self.instructions.append(schema.Instruction(call))

    # -- memory --------------------------------------------------------------------------------------------------

    def _plan_memory(self) -> int:
        """Place all storages, write their offsets into the tensors, and return the arena's size."""
        storages = list({id(storage): storage for storage in self.storage.values()}.values())
        plan = plan_memory([Request(storage.size, storage.first, storage.last) for storage in storages])
        for storage, offset in zip(storages, plan.offsets, strict=True):
            for tensor in storage.tensors:
                tensor.allocation_info = schema.AllocationDetails(
                    memory_id=1, memory_offset_low=offset & 0xFFFFFFFF, memory_offset_high=offset >> 32
                )
        overread = max(
            (delegate.chosen.backend.description.overread_bytes for delegate in self.method.delegates), default=0
        )
        return plan.size + overread


#: A step behind all others.
_FOREVER = 1 << 62


def _tensor_table(value: torch.Tensor) -> schema.Tensor:
    return schema.Tensor(
        scalar_type=int(scalar_type(value.dtype)),
        sizes=list(value.shape),
        dim_order=bytes(range(value.dim())),
    )


def _literal_table(value: Any) -> Any:
    if value is None:
        return schema.Null()
    if isinstance(value, bool):
        return schema.Bool(value)
    if isinstance(value, int):
        return schema.Int(value)
    if isinstance(value, float):
        return schema.Double(value)
    if isinstance(value, str):
        return schema.String(value)
    raise UnsupportedError(f"a value of type {type(value).__name__} cannot be stored in the file")
