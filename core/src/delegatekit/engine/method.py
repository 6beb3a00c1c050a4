"""One method, ready to run: values bound to their memory once, and a flat list of prepared calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy
import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten, treespec_loads

from delegatekit_api import DelegateKitError, ExecutionError, FormatError, TensorSpec

from ..manifest import Manifest, read_manifest
from ..pte import PteFile, schema
from ..pte.dataflow import Effect, calls, effects
from ..pte.dtypes import torch_dtype
from ..pte.schema import is_external
from . import kernels
from .delegate import DelegateInstance, Runtimes, payload

#: Arenas start at multiples of this many bytes, as kernels like it.
_ARENA_ALIGNMENT = 64
#: Behind an arena this many bytes may be read: vector kernels load whole registers at a tensor's end.
_OVERREAD = 128

#: Any method may copy so many bytes of initial values and unaligned constants when it is made.
_COPIED = 64 << 20

#: A chain that jumps back is stopped after so many instructions, as the runtime does.
_INSTRUCTION_LIMIT = 10_000_000

#: A prepared instruction: returns the number of the next instruction, or None for the one behind.
_Step = Callable[[], "int | None"]


class Method:
    """A method of a loaded program. Call it with the module's own inputs.

    It holds one arena and one instance of each delegate: use it from one thread at a time.
    """

    def __init__(self, file: PteFile, plan: schema.ExecutionPlan, runtimes: Runtimes) -> None:
        self.name = str(plan.name)
        self._file = file
        self._runtimes = runtimes
        self._plan = plan
        self._delegates: list[DelegateInstance] = []
        self._checked = False
        self._closed = False
        self._copied = 0
        self._arenas = [_arena(size) for size in plan.non_const_buffer_sizes or ()]
        self._values: list[Any] = [None] * len(plan.values or ())
        for index, value in enumerate(plan.values or ()):
            self._values[index] = self._materialise(value.val)
        for index, value in enumerate(plan.values or ()):
            if isinstance(value.val, schema.IntList | schema.TensorList | schema.OptionalTensorList):
                items = [None if item < 0 else self._values[item] for item in value.val.items or ()]
                self._values[index] = items
        self._calls = calls(plan)
        self._jumps = any(isinstance(call, schema.JumpFalseCall) for call in self._calls)
        self._changing = self._changing_values()
        #: Where each tensor is and must stay.
        self._places = [
            (index, value.shape, value.data_ptr())
            for index, value in enumerate(self._values)
            if isinstance(value, torch.Tensor) and index not in self._changing
        ]
        try:
            self._steps = self._prepare()
        except BaseException:
            self.close()
            raise

    # -- calling -------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, clone_outputs: bool = True, **kwargs: Any) -> Any:
        """Run once and return the outputs in the structure that the module returns them.

        `clone_outputs=False` returns views of the arena, which the next call overwrites. Raises ExecutionError for
        inputs of another count, dtype or shape than the method was lowered for.
        """
        flat = self._flatten(args, kwargs)
        results = self.run(flat)
        if clone_outputs:
            results = [result.clone() if isinstance(result, torch.Tensor) else result for result in results]
        structure = self._output_structure
        if structure is not None:
            return tree_unflatten(results, structure)
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Run once on flat inputs; returns flat outputs, tensors among them as views of the arena."""
        with torch.no_grad():
            self._set_inputs(inputs)
            self._execute()
        return [self._values[index] for index in self._plan.outputs or ()]

    def close(self) -> None:
        """Release the delegates. The method cannot be called afterwards."""
        self._closed = True
        for delegate in self._delegates:
            delegate.destroy()
        self._delegates.clear()

    @cached_property
    def inputs(self) -> tuple[TensorSpec | None, ...]:
        """Specs of the flat inputs; None for an input that is no tensor."""
        return tuple(self._spec(index) for index in self._plan.inputs or ())

    @cached_property
    def outputs(self) -> tuple[TensorSpec | None, ...]:
        """Specs of the flat outputs; None for an output that is no tensor."""
        return tuple(self._spec(index) for index in self._plan.outputs or ())

    @property
    def arena_size(self) -> int:
        """Bytes of planned memory."""
        return sum(self._plan.non_const_buffer_sizes or ())

    # -- values --------------------------------------------------------------------------------------------------

    def _spec(self, index: int) -> TensorSpec | None:
        return tensor_spec((self._plan.values or [])[index].val)

    def _materialise(self, value: Any) -> Any:
        if isinstance(value, schema.Tensor):
            return self._tensor(value)
        if isinstance(value, schema.Int):
            return value.int_val
        if isinstance(value, schema.Bool):
            return value.bool_val
        if isinstance(value, schema.Double):
            return value.double_val
        if isinstance(value, schema.String):
            return value.string_val
        if isinstance(value, schema.DoubleList | schema.BoolList):
            return list(value.items or ())
        return None

    def _tensor(self, table: schema.Tensor) -> torch.Tensor:
        size, dtype = table.nbytes, torch_dtype(table.scalar_type)
        if table.allocation_info is not None:
            offset = table.allocation_info.offset
            data = self._arenas[table.allocation_info.memory_id][offset : offset + size]
            if is_external(table) or table.data_buffer_idx:
                self._count_copied(size)
                data.copy_(_borrowed(self._initial(table, size)))
        elif is_external(table):
            data = _borrowed(self._file.external_tensor(table))
        elif table.data_buffer_idx:
            data = _borrowed(self._file.constant(table.data_buffer_idx, size))
        else:
            data = _arena(size)
        if data.data_ptr() % dtype.itemsize:
            self._count_copied(size)
            data = data.clone()  # constants of other writers may be unaligned, which only costs a copy
        return _shaped(data, dtype, table)

    def _initial(self, table: schema.Tensor, size: int) -> memoryview:
        """The initial value of a buffer that the method updates."""
        if is_external(table):
            return self._file.external_tensor(table)
        return self._file.mutable_state(table.data_buffer_idx, size)

    def _count_copied(self, size: int) -> None:
        """Stop a file whose values all name the same bytes before the copies fill the memory."""
        self._copied += size
        if self._copied > self._copy_limit:
            raise FormatError(f"would copy {self._copied} bytes or more out of its file", where=f"method {self.name}")

    @cached_property
    def _copy_limit(self) -> int:
        outside = sum(len(item.data) for item in self._file.external.values())
        return max(_COPIED, 4 * (self._file.size + outside))

    def _changing_values(self) -> set[int]:
        """Values that instructions replace, so that calls must look them up each time."""
        changing: set[int] = set()
        for call in self._calls:
            if isinstance(call, schema.MoveCall):
                changing.add(call.move_to)
            elif isinstance(call, schema.KernelCall) and kernels.returns_scalar(self._operator(call)):
                changing.add((call.args or [])[-1])
        lists = (schema.IntList, schema.TensorList, schema.OptionalTensorList)
        for index, value in enumerate(self._plan.values or ()):
            if isinstance(value.val, lists) and changing.intersection(value.val.items or ()):
                changing.add(index)
        return changing

    def _current(self, index: int) -> Any:
        """A value as it is now; lists are put together anew."""
        value = (self._plan.values or [])[index].val
        if isinstance(value, schema.IntList | schema.TensorList | schema.OptionalTensorList):
            return [None if item < 0 else self._values[item] for item in value.items or ()]
        return self._values[index]

    # -- instructions --------------------------------------------------------------------------------------------

    def _operator(self, call: schema.KernelCall) -> str:
        return (self._plan.operators or [])[call.op_index].full_name

    def _prepare(self) -> list[_Step]:
        steps: list[_Step] = []
        found = effects(self._plan)
        for chain in self._plan.chains or ():
            start = len(steps)
            for instruction in chain.instructions or ():
                steps.append(self._step(instruction.instr_args, found[len(steps)], start))
        return steps

    def _step(self, call: Any, effect: Effect, chain_start: int) -> _Step:
        if isinstance(call, schema.KernelCall):
            return self._kernel(call)
        if isinstance(call, schema.DelegateCall):
            return self._delegate(call, effect)
        if isinstance(call, schema.MoveCall):
            return self._move(call)
        if isinstance(call, schema.JumpFalseCall):
            return self._jump(call, chain_start)
        return lambda: None  # freeing is for memory that this engine does not allocate

    def _kernel(self, call: schema.KernelCall) -> _Step:
        name, indices = self._operator(call), call.args or []
        if kernels.returns_scalar(name):
            return self._scalar(name, indices)
        if self._changing.intersection(indices):

            def late() -> None:
                kernels.bind(name, [self._current(index) for index in indices])()

            return late
        step = kernels.bind(name, [self._values[index] for index in indices])

        def run() -> None:
            step()

        return run

    def _scalar(self, name: str, indices: Sequence[int]) -> _Step:
        function = kernels.scalar_function(name)
        *arguments, result = indices

        def compute() -> None:
            self._values[result] = function(*[self._values[index] for index in arguments])

        return compute

    def _move(self, call: schema.MoveCall) -> _Step:
        def move() -> None:
            self._values[call.move_to] = self._values[call.move_from]

        return move

    def _jump(self, call: schema.JumpFalseCall, chain_start: int) -> _Step:
        destination = chain_start + call.destination_instruction

        def jump() -> int | None:
            condition = self._values[call.cond_value_index]
            true = bool(condition.all()) if isinstance(condition, torch.Tensor) else bool(condition)
            return None if true else destination

        return jump

    def _delegate(self, call: schema.DelegateCall, effect: Effect) -> _Step:
        reads, writes = effect.reads, effect.writes
        instance = self._new_delegate(call.delegate_index, reads, writes)
        self._delegates.append(instance)
        inputs = [self._values[index] for index in reads]
        outputs = [self._values[index] for index in writes]

        def run() -> None:
            instance.execute(inputs, outputs)

        if self._changing.isdisjoint((*reads, *writes)):
            return run

        def late() -> None:
            instance.execute([self._values[index] for index in reads], [self._values[index] for index in writes])

        return late

    @cached_property
    def _manifest(self) -> Manifest:
        return read_manifest(self._file)

    def _new_delegate(self, index: int, reads: Sequence[int], writes: Sequence[int]) -> DelegateInstance:
        table = (self._plan.delegates or [])[index]
        where = f"method {self.name}, delegate {table.id}"
        runtime = self._runtimes.get(str(table.id), self._manifest.owner(self.name, index), where)
        values: Any = self._plan.values
        inputs, outputs = ([values[item].val for item in items] for items in (reads, writes))
        return DelegateInstance(runtime, payload(self._file, table, inputs, outputs), where)

    def _execute(self) -> None:
        if self._closed:
            raise ExecutionError("was closed", where=f"method {self.name}")
        self._run_steps()
        if self._checked:
            return
        # PyTorch gives an output that does not fit a new size: once is enough to see that none does.
        for index, shape, address in self._places:
            tensor = self._values[index]
            if tensor.shape != shape or tensor.data_ptr() != address:
                raise ExecutionError(f"a kernel resized value {index}", where=f"method {self.name}")
        self._checked = True

    def _run_steps(self) -> None:
        steps, position, count = self._steps, 0, 0
        try:
            if not self._jumps:
                for position, step in enumerate(steps):  # noqa: B007  (the error below says where)
                    step()
                return
            while position < len(steps):
                target = steps[position]()
                position = position + 1 if target is None else target
                count += 1
                if count > _INSTRUCTION_LIMIT:
                    raise ExecutionError(f"no end after {_INSTRUCTION_LIMIT} instructions")
        except DelegateKitError:
            raise
        except Exception as error:
            call = self._calls[position]
            name = self._operator(call) if isinstance(call, schema.KernelCall) else type(call).__name__
            where = f"method {self.name}, instruction {position} ({name})"
            raise ExecutionError(f"failed: {type(error).__name__}: {error}", where=where) from error

    # -- inputs and outputs --------------------------------------------------------------------------------------

    def _set_inputs(self, inputs: Sequence[Any]) -> None:
        indices = self._plan.inputs or []
        if len(inputs) != len(indices):
            raise ExecutionError(f"takes {len(indices)} inputs, got {len(inputs)}", where=f"method {self.name}")
        for position, (index, given) in enumerate(zip(indices, inputs, strict=True)):
            bound = self._values[index]
            if not isinstance(bound, torch.Tensor):
                if type(given) is not type(bound) or given != bound:
                    self._refuse_input(position, f"was lowered for the value {bound!r}, got {given!r}")
            elif not isinstance(given, torch.Tensor):
                self._refuse_input(position, f"is a {type(given).__name__}, not a tensor")
            elif given.dtype != bound.dtype:
                self._refuse_input(position, f"has dtype {given.dtype}, not {bound.dtype}")
            elif given.shape != bound.shape:
                self._refuse_shape(position, index, given)
            else:
                bound.copy_(given)

    def _refuse_shape(self, position: int, index: int, given: torch.Tensor) -> None:
        spec = self._spec(index)
        what = f"has shape {tuple(given.shape)}, not {tuple(self._values[index].shape)}"
        if spec is not None and spec.dynamic:
            what += " (the file would take smaller sizes, but the Python engine runs the largest only)"
        self._refuse_input(position, what)

    def _refuse_input(self, position: int, what: str) -> NoReturn:
        raise ExecutionError(what, where=f"method {self.name}, input {position}")

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        structure = self._input_structure
        if structure is None:
            if kwargs:
                raise ExecutionError("takes positional inputs only", where=f"method {self.name}")
            return list(args)
        flat, given = tree_flatten((args, kwargs))
        if given != structure:
            ordered = self._reordered(kwargs, structure)
            flat, given = tree_flatten((args, ordered))
        if given != structure:
            raise ExecutionError(f"got inputs of structure {given}, not {structure}", where=f"method {self.name}")
        return flat

    @staticmethod
    def _reordered(kwargs: dict[str, Any], structure: TreeSpec) -> dict[str, Any]:
        """Keyword arguments in the order in which the module was exported."""
        names = structure.children()[1].context or []
        return {name: kwargs[name] for name in names if name in kwargs} | kwargs

    @cached_property
    def _input_structure(self) -> TreeSpec | None:
        container = self._plan.container_meta_type
        return _structure(container.encoded_inp_str if container is not None else None)

    @cached_property
    def _output_structure(self) -> TreeSpec | None:
        container = self._plan.container_meta_type
        structure = _structure(container.encoded_out_str if container is not None else None)
        # Some writers put the structure of one output where the method returns several: trust only what fits.
        fits = structure is not None and structure.num_leaves == len(self._plan.outputs or ())
        return structure if fits else None


def tensor_spec(value: Any) -> TensorSpec | None:
    """The spec of a tensor table; None for any other value."""
    if not isinstance(value, schema.Tensor):
        return None
    dtype = str(torch_dtype(value.scalar_type)).removeprefix("torch.")
    return TensorSpec(dtype, tuple(value.sizes or ()), dynamic=bool(value.shape_dynamism))


def _structure(text: str | None) -> TreeSpec | None:
    if not text:
        return None
    try:
        return treespec_loads(text)
    except Exception:
        # Files of other writers may hold a structure of types unknown here; their inputs and outputs stay flat.
        return None


def _arena(size: int) -> torch.Tensor:
    try:
        # Zeros of NumPy take no memory before they are touched; PyTorch's are written.
        memory = torch.from_numpy(numpy.zeros(size + _ARENA_ALIGNMENT + _OVERREAD, dtype=numpy.uint8))
    except MemoryError as error:
        raise ExecutionError(f"there is no memory for a buffer of {size} bytes") from error
    start = -memory.data_ptr() % _ARENA_ALIGNMENT
    return memory[start : start + size]


def _borrowed(data: memoryview) -> torch.Tensor:
    """The bytes as a tensor that points at them."""
    if not len(data):
        return torch.empty(0, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the file is mapped read-only, and constants are only read
        return torch.frombuffer(data, dtype=torch.uint8)


def _shaped(data: torch.Tensor, dtype: torch.dtype, table: schema.Tensor) -> torch.Tensor:
    """Bytes as a tensor of the table's sizes, in its dim order."""
    sizes, order = table.sizes or [], list(table.dim_order or ())
    dense = data.view(dtype).reshape([sizes[axis] for axis in order])
    return dense.permute([order.index(axis) for axis in range(len(order))])
