"""Builds the execution plan of one method: values, memory, operators, delegates and instructions."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import compress
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from delegatekit_api import LoweringError, UnsupportedError, describe_node, is_dynamic, source_frames

from ..edge.sizes import is_size, is_size_node, is_static, upper_shape
from ..fallback import require_kernel
from ..lowering import Delegate, LoweredMethod
from ..pte import schema
from ..pte.dtypes import scalar_type, torch_dtype
from . import control_flow
from .arena import ArenaReport, PlannedValue
from .reuse import FOREVER, Reuse, Storage

if TYPE_CHECKING:
    from .emit import Shared

aten = torch.ops.aten

#: Views of a contiguous value that are the same bytes under other sizes.
_SAME_BYTES = frozenset({aten.view_copy.default, aten.squeeze_copy.dims, aten.unsqueeze_copy.default})


class MethodEmitter:
    """Builds one execution plan. Each method below writes one of its parts."""

    def __init__(self, name: str, method: LoweredMethod, shared: Shared) -> None:
        self.name = name
        self.method = method
        self.shared = shared
        self.values: list[schema.EValue] = []
        self.index: dict[Any, int] = {}  # node, or (node, result number), or a literal's key -> value index
        self.storage: dict[Any, Storage] = {}  # node or (node, result number) -> memory
        self.constants = dict(method.edge.constants)
        self.operators: dict[str, int] = {}
        self.operator_tables: list[schema.Operator] = []
        self.delegates: list[schema.BackendDelegate] = []
        self.instructions: list[schema.Instruction] = []
        #: Debug handles of each instruction.
        self.handles: list[tuple[int, ...]] = []
        self.current_handles: tuple[int, ...] = ()
        self.stacks: list[schema.FrameList] = []
        self.current_node: Node | None = None
        self.step = 0
        self.returned = {item for item in method.edge.outputs if isinstance(item, Node)}
        self.owned = method.plan.owned_buffers
        self.in_place = _in_place_updates(method)
        #: Memory that the loops around the current step use, inmost last.
        self._loops: list[set[Storage]] = []
        #: Value index -> memory, for values that several nodes stand for.
        self._homes: dict[int, Storage] = {}
        memory = shared.spaces.options
        self._reuse = Reuse(in_place=memory.in_place, views=memory.views, alignment=memory.alignment)
        self._backends: list[str] = []  # of the delegates
        #: What `plan` makes of the memory, space by space.
        self.arenas: tuple[ArenaReport, ...] = ()

    def plan(self) -> schema.ExecutionPlan:
        """The finished plan. Memory is planned here, constants and blobs go to what the methods share."""
        edge = self.method.edge
        inputs = [self._input(node) for node in edge.inputs]
        buffers = {node: buffer for node, buffer in edge.buffers.items() if node not in self.owned}
        for node in buffers:
            self._buffer(node)
        self._steps(self.method)
        updates = {
            node: self._before_write_back(buffer.updated)
            for node, buffer in buffers.items()
            if buffer.updated not in self.in_place
        }
        outputs = [self._output(self._before_write_back(item)) for item in edge.outputs]
        self._write_back(updates)
        sizes = self._plan_memory()
        return schema.ExecutionPlan(
            name=self.name,
            container_meta_type=schema.ContainerMetadata(edge.input_structure, edge.output_structure),
            values=self.values,
            inputs=inputs,
            outputs=outputs,
            chains=[
                schema.Chain(
                    inputs=[],
                    outputs=[],
                    instructions=self.instructions,
                    stacktrace=self.stacks if self.shared.stack_traces else None,
                )
            ],
            operators=self.operator_tables,
            delegates=self.delegates,
            non_const_buffer_sizes=sizes,
        )

    def _steps(self, method: LoweredMethod) -> None:
        sizes = self._needed_sizes(method)
        for step in method.steps:
            self.step = len(self.instructions) + 1
            if isinstance(step, Delegate):
                self.current_handles = tuple(dict.fromkeys(node.meta["debug_handle"] for node in step.partition.nodes))
                self.current_node = step.partition.nodes[0]
                self._delegate_call(step)
                continue
            self.current_handles, self.current_node = (step.meta["debug_handle"],), step
            if step in method.regions:
                control_flow.emit_region_call(self, step, method.regions[step])
            elif not is_size_node(step):
                self._operator_call(step)
            elif step in sizes:
                self._size(step)
        self.current_handles, self.current_node = (), None

    # -- inputs, buffers, outputs --------------------------------------------------------------------------------

    def _input(self, node: Node) -> int:
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return self._literal_value(value)
        return self._planned(node, value)

    def _buffer(self, node: Node) -> None:
        buffer = self.method.edge.buffers[node]
        index = self._planned(node, node.meta["val"])
        tensor = self.tensor(index)
        tensor.data_buffer_idx = self.shared.state(buffer.initial)
        tensor.extra_tensor_info = schema.ExtraTensorInfo(fully_qualified_name=buffer.name)
        home = self.storage[node]
        home.name, home.last, home.rewritten, home.state = buffer.name, FOREVER, True, True

    def _output(self, item: Any) -> int:
        """The index of an output: a node, the key of a kept value, or a literal."""
        if not isinstance(item, Node) and item not in self.storage:
            return self._literal_value(item)
        self.step = len(self.instructions) + 1
        index = self._value(item)
        if item in self.storage:
            self.storage[item].last = FOREVER
        return index

    def _before_write_back(self, item: Any) -> Any:
        """The key of a value that keeps what `item` is now, although buffers are about to change.

        A buffer itself, returned or copied into another buffer, is the one value that does not stay as it is.
        """
        if not isinstance(item, Node) or self.storage.get(item) not in self._buffer_storages() or item in self.in_place:
            return item
        key = (item, "kept")
        if key not in self.index:
            self.step = len(self.instructions) + 1
            source = self._value(item)
            kept = self._planned(key, item.meta["val"])
            self._kernel("aten::clone", "out", [source, self._literal_value(None), kept, kept])
        return key

    def _buffer_storages(self) -> list[Storage]:
        return [self.storage[node] for node in self.method.edge.buffers if node not in self.owned]

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

    def tensor(self, index: int) -> schema.Tensor:
        """The tensor with this index."""
        tensor = self.values[index].val
        assert isinstance(tensor, schema.Tensor)
        return tensor

    def _planned(self, key: Any, value: torch.Tensor, shares: Storage | None = None) -> int:
        """A tensor in the arena: in memory of its own, or in `shares`."""
        tensor = _tensor_table(value, key)
        self.index[key] = self._add(tensor)
        if shares is None:
            size = math.prod(tensor.sizes or ()) * value.element_size()
            shares = Storage(size, self.step, self.step, [], name=str(key if isinstance(key, Node) else key[0]))
        shares.tensors.append(tensor)
        self.storage[key] = self._homes[self.index[key]] = shares
        return self.index[key]

    def _value(self, node: Any) -> int:
        """The index of a node's value, which is in use at the current step."""
        if node in self.storage:
            storage = self.storage[node]
            storage.last = max(storage.last, self.step)
            storage.reads.append(self.step)
            for touched in self._loops:
                touched.add(storage)
        known = self.index.get(node)
        if known is not None:
            return known
        constant = self.constants.get(node)
        if constant is None:
            raise LoweringError(
                "is used before it is computed: this is a fault of DelegateKit", where=describe_node(node)
            )
        tensor = _tensor_table(constant, node)
        self.shared.place(tensor, constant, node.meta.get("fqn"))
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
        self._append(schema.KernelCall(self.operators[full_name], arguments))

    def _append(self, call: Any) -> None:
        self.instructions.append(schema.Instruction(call))
        self.handles.append(self.current_handles)
        if self.shared.stack_traces:
            self.stacks.append(_stack(self.current_node))

    def _operator_call(self, node: Node) -> None:
        if node.target is operator.getitem:
            source: Any = (node.args[0], node.args[1])
            self.index[node], self.storage[node] = self.index[source], self.storage[source]
            return
        if self._is_elided(node):
            self._view(node)
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
        buffer = self.in_place.get(node)
        if buffer is not None:
            self.index[node], self.storage[node] = self.index[buffer], self.storage[buffer]
            self._kernel(f"{variant.name}_", "", [*arguments, self.index[node]])
            return
        self._kernel(variant.name, variant.overload, [*arguments, *self._results(node)])
        if node in self.storage:
            operands = [(operand, self.storage.get(operand)) for operand in _tensor_operands(node)]
            self._reuse.offer(variant.full_name, self.step, node, self.storage[node], operands)

    def _is_elided(self, node: Node) -> bool:
        """Whether a node's value lies in the memory of what it views."""
        return _is_view(node) and node.args[0] not in self.constants and node not in self.returned

    def _view(self, node: Node) -> None:
        """The node's value in the memory of what it views: nothing to do, unless sizes must be set in each call."""
        base: Any = node.args[0]
        source = self._value(base)
        value = node.meta["val"]
        result = self._planned(node, value, shares=self.storage[base])
        if is_dynamic(value):
            sizes: Any = node.args[1]
            if _changing(node) == 1:  # the kernel finds it out
                sizes = [size if isinstance(size, int) else -1 for size in value.shape]
            items = [self._value(size) if isinstance(size, Node) else self.literal(size) for size in sizes]
            self.prim("et_view.default", source, self._list_value(schema.IntList, items), result)

    def _needed_sizes(self, method: LoweredMethod) -> set[Node]:
        """The size nodes that somebody outside delegates uses."""
        needed: set[Node] = set()
        waiting = [item for item in method.edge.outputs if isinstance(item, Node)]
        for step in method.steps:
            if (
                isinstance(step, Node)
                and not is_size_node(step)
                and not (self._is_elided(step) and _changing(step) < 2)
            ):
                waiting.extend(step.all_input_nodes)
        while waiting:
            node = waiting.pop()
            if is_size_node(node) and node not in needed:
                needed.add(node)
                waiting.extend(node.all_input_nodes)
        return needed

    def _size(self, node: Node) -> None:
        """A number computed from sizes."""
        self.index[node] = self.new_number(_ZEROS[type(node.meta["val"])])
        arguments = [self._value(item) if isinstance(item, Node) else self.literal(item) for item in node.args]
        if node.target is aten.sym_size.int:
            self._kernel("aten::sym_size", "int", [*arguments, self.index[node]])
        else:
            self.prim(_SIZE_FUNCTIONS[node.target], *arguments, self.index[node])

    def _results(self, node: Node) -> list[int]:
        """Values for what the operator writes, and how a kernel call repeats them behind its arguments."""
        value = node.meta["val"]
        if is_size(value):
            self.index[node] = self.new_number(_ZEROS[type(value)])
            return [self.index[node]]
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
        if "Tensor" not in text and any(isinstance(item, Node) for item in items):
            if "List[int]" not in text:
                raise UnsupportedError(
                    f"argument {argument.name} has numbers that change from call to call", where=describe_node(node)
                )
            items = [self._value(item) if isinstance(item, Node) else self.literal(int(item)) for item in items]
            return self._list_value(schema.IntList, items)
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
        outputs = [self._planned(key, value) for key, value in delegate.results]
        self.delegates.append(
            schema.BackendDelegate(
                id=delegate.chosen.backend.description.delegate_id,
                processed=schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, len(self.shared.blobs)),
                compile_specs=[schema.CompileSpec(spec.key, spec.value) for spec in delegate.compile_specs],
            )
        )
        self._backends.append(delegate.chosen.backend.name)
        self.shared.blobs.append(delegate.blob)
        self.shared.named_data.extend(delegate.named_data)
        self._append(schema.DelegateCall(len(self.delegates) - 1, [*inputs, *outputs]))

    # -- control flow --------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Number of the next instruction."""
        return len(self.instructions)

    def literal(self, value: Any) -> int:
        """The index of a number that never changes."""
        return self._literal_value(value)

    def new_number(self, value: Any) -> int:
        """The index of a number of its own, for instructions to change."""
        return self._add(_literal_table(value))

    def prim(self, name: str, *arguments: int) -> None:
        """Call one of the runtime's own kernels, "add.Scalar"."""
        packet, _, overload = name.partition(".")
        self._kernel(f"executorch_prim::{packet}", overload, list(arguments))

    def operand(self, item: Any) -> int:
        """The index of a node or of a literal, in use at this step."""
        self.step = len(self.instructions) + 1
        return self._value(item) if isinstance(item, Node) or item in self.index else self.literal(item)

    def planned_results(self, node: Node, *, dynamic: bool = False) -> list[Any]:
        """Memory for the results of a control flow operator; None for a result that is no tensor."""
        self.step = len(self.instructions) + 1
        results: list[Any] = []
        for number, value in enumerate(node.meta["val"]):
            if not isinstance(value, torch.Tensor):
                results.append(None)
                continue
            key = (node, number)
            index = self._planned(key, value)
            if dynamic:
                self.tensor(index).shape_dynamism = schema.TensorShapeDynamism.DYNAMIC_BOUND
            results.append(index)
            # Written within, wherever that is: the first use begins here, and jumps may come back.
            for touched in self._loops:
                touched.add(self.storage[key])
            self.storage[key].rewritten = True
        return results

    def enter_region(self, region: LoweredMethod, operands: list[int]) -> None:
        """Write a graph's instructions, its inputs being the values `operands`."""
        self.constants.update(region.edge.constants)
        for node, index in zip(region.edge.inputs, operands, strict=True):
            self.index[node] = index
            if index in self._homes:
                self.storage[node] = self._homes[index]
        around = self.current_handles, self.current_node
        self._steps(region)
        self.current_handles, self.current_node = around

    def copy_into(self, target: int, item: Any) -> None:
        """Copy a node's value (or the value `item` of the file) into a planned one, with its sizes."""
        source = self.operand(item) if isinstance(item, Node) else item
        if target in self._homes:
            self._homes[target].last = max(self._homes[target].last, self.step)
        if source != target:
            self._kernel("aten::clone", "out", [source, self.literal(None), target, target])

    def kept(self, item: Any, among: list[Any]) -> int:
        """The value of `item`, or a copy of it if it is one of `among`, which are about to change."""
        index = self.operand(item)
        home = self.storage.get(item)
        if home is None or home not in [self._homes[place] for place in among if place in self._homes]:
            return index
        key = (item, "kept", self.step)
        copy = self._planned(key, item.meta["val"])
        self.copy_into(copy, index)
        self.storage[key].last = self.step + len(among)
        return copy

    def row_count(self, node: Node) -> int:
        """The number of rows of a tensor."""
        rows = node.meta["val"].shape[0]
        if isinstance(rows, int):
            return self.literal(rows)
        count = self.new_number(0)
        self._kernel("aten::sym_size", "int", [self.operand(node), self.literal(0), count])
        return count

    def select_row(self, node: Node, row: int) -> int:
        """A tensor's row, copied."""
        source = self.operand(node)
        key = (node, "row", self.step)
        result = self._planned(key, node.meta["val"][0])
        self._kernel("aten::select_copy", "int_out", [source, self.literal(0), row, result, result])
        return result

    def move(self, source: int, target: int) -> None:
        """Make a number another one."""
        self._append(schema.MoveCall(source, target))

    def jump_if_false(self, condition: int) -> schema.JumpFalseCall:
        """Jump where the condition is false; `land` says where to."""
        jump = schema.JumpFalseCall(condition, 0)
        self._append(jump)
        return jump

    def jump(self, destination: int = 0) -> schema.JumpFalseCall:
        """Jump in any case."""
        jump = self.jump_if_false(self.literal(False))
        jump.destination_instruction = destination
        return jump

    def land(self, jump: schema.JumpFalseCall) -> None:
        """Let a jump go to the next instruction."""
        jump.destination_instruction = len(self.instructions)

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Instructions that may run again: what they use from before must stay until the last of them."""
        start = len(self.instructions)
        self._loops.append(set())
        yield
        for storage in self._loops.pop():
            if storage.first <= start + 1:
                storage.last = max(storage.last, len(self.instructions) + 1)

    # -- memory --------------------------------------------------------------------------------------------------

    def _plan_memory(self) -> list[int]:
        """Place all storages, write their offsets into the tensors, and return the sizes of the spaces."""
        storages = list(dict.fromkeys(self.storage.values()))
        planner = self.shared.spaces.options.planner
        needless = self._reuse.apply(storages, planner if isinstance(planner, str) else "best")
        values = self._planned_values(storages, needless)
        overread = overread_bytes(self.method)
        places, sizes, self.arenas = self.shared.spaces.plan(self.name, list(values.values()), overread)
        place_of = dict(zip(values, places, strict=True))
        for storage in storages:
            root, shift = storage.root()
            space, offset = place_of[root]
            for tensor in storage.tensors:
                place = offset + shift
                tensor.allocation_info = schema.AllocationDetails(
                    memory_id=space, memory_offset_low=place & 0xFFFFFFFF, memory_offset_high=place >> 32
                )
        self._drop(needless)
        return sizes

    def _planned_values(self, storages: Sequence[Storage], needless: Set[int]) -> dict[Storage, PlannedValue]:
        """A description of each storage that lies in no other one, with steps counted as in the finished method."""
        kept = [0]  # step -> how many of the steps up to it stay
        for step in range(1, len(self.instructions) + 2):
            kept.append(kept[-1] + (step not in needless))
        members: dict[Storage, list[Storage]] = {}
        for storage in storages:
            members.setdefault(storage.root()[0], []).append(storage)
        outputs = {index for item in self.method.edge.outputs if (index := self.index.get(item)) is not None}
        returned = {home for index, home in self._homes.items() if index in outputs}
        found: dict[Storage, PlannedValue] = {}
        for root, inner in members.items():
            table = root.tensors[0]
            writes = sorted({storage.first for storage in inner} - needless)
            reads = sorted({step for storage in inner for step in storage.reads} - needless)
            found[root] = PlannedValue(
                method=self.name,
                names=tuple(dict.fromkeys(storage.name for storage in (root, *inner))),
                size=root.size,
                dtype=str(torch_dtype(table.scalar_type)).removeprefix("torch."),
                shape=tuple(table.sizes or ()),
                first=kept[root.first],
                last=kept[min(root.last, len(self.instructions) + 1)],
                is_input=any(storage.first == 0 and not storage.state for storage in inner),
                is_output=any(storage in returned for storage in inner),
                is_buffer=root.state,
                writers=self._actors(writes, "input" if not root.state else "initial value"),
                readers=self._actors(reads, ""),
            )
        return found

    def _actors(self, steps: Iterable[int], before: str) -> tuple[str, ...]:
        """Kernels and backends of some steps; `before` is what step 0 is called."""
        names = []
        for step in steps:
            call = self.instructions[step - 1].instr_args if 0 < step <= len(self.instructions) else None
            if isinstance(call, schema.KernelCall):
                names.append(self.operator_tables[call.op_index].full_name)
            elif isinstance(call, schema.DelegateCall):
                names.append(self._backends[call.delegate_index])
            elif step == 0 and before:
                names.append(before)
        return tuple(dict.fromkeys(names))

    def _drop(self, needless: Set[int]) -> None:
        """Leave out the instructions of these steps; jumps go where they went."""
        if not needless:
            return
        before = [0]  # instruction -> how many of those in front of it stay
        for step in range(1, len(self.instructions) + 1):
            before.append(before[-1] + (step not in needless))
        kept = [step not in needless for step in range(1, len(self.instructions) + 1)]
        for instruction in self.instructions:
            if isinstance(instruction.instr_args, schema.JumpFalseCall):
                jump = instruction.instr_args
                jump.destination_instruction = before[jump.destination_instruction]
        self.instructions[:] = compress(self.instructions, kept)
        self.handles[:] = compress(self.handles, kept)
        self.stacks[:] = compress(self.stacks, kept)


_ZEROS: dict[type, Any] = {torch.SymInt: 0, torch.SymFloat: 0.0, torch.SymBool: False}

#: Python's functions on sizes -> the runtime's.
_SIZE_FUNCTIONS: dict[Any, str] = {
    operator.add: "add.Scalar",
    operator.sub: "sub.Scalar",
    operator.mul: "mul.Scalar",
    operator.floordiv: "floordiv.Scalar",
    operator.truediv: "truediv.Scalar",
    operator.mod: "mod.Scalar",
    operator.eq: "eq.Scalar",
    operator.gt: "gt.Scalar",
    operator.ge: "ge.Scalar",
    operator.lt: "lt.Scalar",
    operator.le: "le.Scalar",
    torch.sym_max: "sym_max.Scalar",
    torch.sym_min: "sym_min.Scalar",
    torch.sym_float: "sym_float.Scalar",
    torch.sym_not: "sym_not.Scalar",
    math.trunc: "trunc.Scalar",
    math.ceil: "ceil.Scalar",
    round: "round.Scalar",
}


def _in_place_updates(method: LoweredMethod) -> dict[Node, Node]:
    """New value of a buffer -> the buffer, where the runtime's kernel may write it right there.

    So it is with a cache of which some rows are replaced, if nobody needs the old rows behind that.
    """
    found: dict[Node, Node] = {}
    position = {step: number for number, step in enumerate(method.steps) if isinstance(step, Node)}
    for node, buffer in method.edge.buffers.items():
        new = buffer.updated
        if new.target not in _IN_PLACE or new.args[0] is not node or new not in position:
            continue
        behind = method.steps[position[new] + 1 :]
        seen = _seen_through_views(node)
        used = any(
            not seen.isdisjoint(step.partition.inputs if isinstance(step, Delegate) else step.all_input_nodes)
            for step in behind
        )
        kept = not seen.isdisjoint(item for item in method.edge.outputs if isinstance(item, Node)) or any(
            other.updated in seen for other in method.edge.buffers.values()
        )
        if not used and not kept:
            found[new] = node
    return found


def _seen_through_views(node: Node) -> set[Node]:
    """The node, and the nodes whose values may lie in its memory."""
    seen = {node}
    waiting = [node]
    while waiting:
        for user in waiting.pop().users:
            if user.target in _SAME_BYTES and user not in seen:
                seen.add(user)
                waiting.append(user)
    return seen


#: Operators whose in-place form the runtime has and that touch only a part of their operand.
_IN_PLACE = frozenset({aten.index_put.default})


def overread_bytes(method: LoweredMethod) -> int:
    """How many bytes behind its inputs a delegate of the method may read."""
    return max((delegate.chosen.backend.description.overread_bytes for delegate in method.delegates), default=0)


def _tensor_operands(node: Node) -> list[Node]:
    """The tensors that a call takes, in order, one that comes twice twice."""
    found: list[Node] = []

    def visit(operand: Node) -> Node:
        found.append(operand)
        return operand

    torch.fx.map_arg((node.args, node.kwargs), visit)
    return [operand for operand in found if isinstance(operand.meta["val"], torch.Tensor)]


def _stack(node: Node | None) -> schema.FrameList:
    frames = () if node is None else source_frames(node)
    return schema.FrameList([schema.Frame(frame.path, frame.line, frame.function, frame.code) for frame in frames])


def _is_view(node: Node) -> bool:
    """Whether a node is the same bytes under other sizes, which the runtime can be told."""
    return node.target is aten.view_copy.default or (node.target in _SAME_BYTES and _changing(node) <= 1)


def _changing(node: Node) -> int:
    """How many sizes of a node's value change from call to call."""
    return sum(not isinstance(size, int) for size in node.meta["val"].shape)


def _tensor_table(value: torch.Tensor, key: Any) -> schema.Tensor:
    static = is_static(value.shape)
    node = key if isinstance(key, Node) else key[0]
    return schema.Tensor(
        scalar_type=int(scalar_type(value.dtype)),
        sizes=list(value.shape) if static else list(upper_shape(value.shape, describe_node(node))),
        dim_order=bytes(range(value.dim())),
        shape_dynamism=schema.TensorShapeDynamism.STATIC if static else schema.TensorShapeDynamism.DYNAMIC_BOUND,
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
    raise UnsupportedError(
        f"{value!r:.60}, a value of type {type(value).__name__}, cannot be stored in the file",
        where="a number or text among the arguments or results",
    )
