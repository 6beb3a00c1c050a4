"""The instructions of a method as prepared calls, bound once to the tensors that they read and write.

A step is run carefully at first: results are made empty, so that kernels resize them without a warning, and
checked after the call. After success the step is replaced by the bare call, until a size changes again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, TypeAlias

import torch

from delegatekit_api import DelegateKitError, ExecutionError

from ..pte import schema
from ..pte.dataflow import callee, calls, effects
from ..pte.signatures import signature, written
from . import kernels
from .delegate import DelegateInstance
from .sizes import Sizes

#: A chain that jumps back is stopped after this many instructions, as the runtime does.
INSTRUCTION_LIMIT: Final = 10_000_000

#: A prepared instruction. An int is the number of the next instruction; anything else means the one after it.
Step: TypeAlias = Callable[[], Any]

#: Runs an instruction, given its position and its step, and times it; returns the step's result.
Recorder: TypeAlias = Callable[[int, Step], Any]

#: Creates the delegate of a call from its index and the values it reads and writes.
MakeDelegate: TypeAlias = Callable[[int, Sequence[int], Sequence[int]], DelegateInstance]

#: Finds the kernel of a library's operator: "acme::add.out".
FindKernel: TypeAlias = Callable[[str], Callable[..., None]]

#: The kernel that reads a number from a tensor.
_FROM_CONTENT: Final = "aten::_local_scalar_dense"

_LISTS: Final = (schema.IntList, schema.TensorList, schema.OptionalTensorList)


class Instructions:
    """The prepared instructions of one instance of a method, and its current values.

    `values` by index; lists among them are filled in here. `delegate_outputs` are known numbers of outputs by
    delegate index.
    """

    def __init__(
        self,
        plan: schema.ExecutionPlan,
        values: list[Any],
        delegate_outputs: Mapping[int, int],
        make_delegate: MakeDelegate,
        find_kernel: FindKernel,
    ) -> None:
        self.values = values
        #: By the positions of the instructions that call them.
        self.delegates: dict[int, DelegateInstance] = {}
        self._plan = plan
        self._tables: list[Any] = [value.val for value in plan.values or ()]
        self._where = f"method {plan.name}"
        self._calls = calls(plan)
        self._effects = effects(plan, delegate_outputs)
        self._jumps = any(isinstance(call, schema.JumpFalseCall) for call in self._calls)
        self._make_delegate = make_delegate
        self._find_kernel = find_kernel
        #: The sizes of tensors that instructions may write, and those of them that change, by the tensor's id.
        self._sizes = {
            id(value): Sizes(value, table.dim_order or b"", dynamic=bool(table.shape_dynamism))
            for value, table in zip(values, self._tables, strict=True)
            if isinstance(table, schema.Tensor) and not (table.allocation_info is None and table.data_buffer_idx)
        }
        self._resizable = {key: sizes for key, sizes in self._sizes.items() if sizes.dynamic}
        self._replaced = self._find_replaced()
        self._initial = {index: values[index] for index in self._replaced}
        #: Value -> the containers, and positions in them, that hold it, to be updated when it is replaced.
        self._subscribers: dict[int, list[tuple[Any, Any]]] = {}
        self._fill_lists()
        #: Numbers that are constant while sizes are.
        self._followers = self._find_followers()
        #: Results that are written row by row, whose number of rows is the number of rows written.
        self._growing: list[Sizes] = []
        #: Position -> the careful step, to go back to when sizes change.
        self._careful: dict[int, Step] = {}
        self._steps: list[Step] = []
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    # -- running -------------------------------------------------------------------------------------------------

    def run(self, deadline: float | None = None, recorder: Recorder | None = None) -> None:
        """Run all instructions. Raises ExecutionError, naming the instruction that failed.

        `deadline` is the time to stop, in seconds of `time.monotonic`, checked after each instruction. A `recorder`
        runs the instructions.
        """
        for sizes in self._growing:
            sizes.resize((0, *sizes.largest[1:]))
        position, steps = 0, self._steps
        try:
            if not self._jumps and deadline is None and recorder is None:
                for position, step in enumerate(steps):  # noqa: B007  (the error below says where)
                    step()
                return
            count, end = 0, len(steps)
            while position < end:
                target = steps[position]() if recorder is None else recorder(position, steps[position])
                if deadline is not None and monotonic() > deadline:
                    raise ExecutionError("took longer than the time limit", where=self._place(position))
                position = target if target.__class__ is int else position + 1
                count += 1
                if count > INSTRUCTION_LIMIT:
                    raise ExecutionError(f"no end after {INSTRUCTION_LIMIT} instructions", where=self._where)
        except DelegateKitError:
            raise
        except Exception as error:
            what = f"failed: {type(error).__name__}: {error}"
            raise ExecutionError(what, where=self._place(position)) from error

    def sizes_changed(self) -> None:
        """Run the steps whose sizes may change carefully again."""
        for position, step in self._careful.items():
            self._steps[position] = step

    def sizes_of(self, tensor: torch.Tensor) -> Sizes | None:
        """The object that resizes a tensor; None if its sizes are fixed."""
        return self._resizable.get(id(tensor))

    def reset(self) -> None:
        """Reset values that instructions replace to their initial ones, and restart stateful delegates."""
        for index, value in self._initial.items():
            self._store(index, value)
        self.sizes_changed()
        for delegate in self.delegates.values():
            delegate.reset()

    def close(self) -> None:
        """Release the delegates."""
        for delegate in self.delegates.values():
            delegate.destroy()
        self.delegates.clear()

    # -- values --------------------------------------------------------------------------------------------------

    def _find_replaced(self) -> set[int]:
        """Values that instructions replace, so that calls must get them again."""
        replaced: set[int] = set()
        for call in self._calls:
            if isinstance(call, schema.MoveCall):
                replaced.add(call.move_to)
            elif isinstance(call, schema.KernelCall) and kernels.returns_scalar(self._operator(call)):
                replaced.add((call.args or [])[-1])
        return replaced

    def _fill_lists(self) -> None:
        for index, table in enumerate(self._tables):
            if not isinstance(table, _LISTS):
                continue
            items = [None if item < 0 else self.values[item] for item in table.items or ()]
            self.values[index] = items
            for position, item in enumerate(table.items or ()):
                if item in self._replaced:
                    self._subscribers.setdefault(item, []).append((items, position))

    def _find_followers(self) -> set[int]:
        """Numbers that are written once, from sizes and from such numbers.

        There are none where there are jumps: an instruction may run again with other values.
        """
        followers: set[int] = set()
        if self._jumps:
            return followers
        writes = Counter(
            call.move_to if isinstance(call, schema.MoveCall) else (call.args or [-1])[-1]
            for call in self._calls
            if isinstance(call, schema.MoveCall | schema.KernelCall)
        )
        for call in self._calls:
            if isinstance(call, schema.KernelCall) and kernels.returns_scalar(self._operator(call)):
                *arguments, result = call.args or [-1]
                known = all(item in followers or item not in self._replaced for item in arguments)
                if known and writes[result] == 1 and self._operator(call) != _FROM_CONTENT:
                    followers.add(result)
        return followers

    def _store(self, index: int, value: Any) -> None:
        self.values[index] = value
        for container, key in self._subscribers.get(index, ()):
            container[key] = value

    def _tensors(self, index: int) -> Sequence[int]:
        """The value itself if it is a tensor; of a list, its tensors."""
        found = (index, *self._items(index))
        return [item for item in found if isinstance(self._tables[item], schema.Tensor)]

    def _may_change(self, indices: Iterable[int]) -> bool:
        """True if any of these values is resized or replaced, or is a list with such items."""
        return any(
            item in self._replaced or id(self.values[item]) in self._resizable
            for index in indices
            for item in (index, *self._items(index))
        )

    def _items(self, index: int) -> Sequence[int]:
        """The values in a list."""
        table = self._tables[index]
        return [item for item in table.items or () if item >= 0] if isinstance(table, _LISTS) else ()

    # -- preparing -----------------------------------------------------------------------------------------------

    def _operator(self, call: schema.KernelCall) -> str:
        return (self._plan.operators or [])[call.op_index].full_name

    def _place(self, position: int) -> str:
        return f"{self._where}, instruction {position} ({callee(self._plan, self._calls[position])})"

    def _prepare(self) -> None:
        for chain in self._plan.chains or ():
            start = len(self._steps)
            for instruction in chain.instructions or ():
                self._steps.append(self._step(len(self._steps), instruction.instr_args, start))

    def _step(self, position: int, call: Any, chain_start: int) -> Step:
        if isinstance(call, schema.KernelCall):
            if kernels.returns_scalar(self._operator(call)):
                return self._scalar(position, call.args or [])
            return self._kernel(position, call)
        if isinstance(call, schema.DelegateCall):
            return self._delegate(position, call)
        if isinstance(call, schema.MoveCall):
            return self._move(call)
        if isinstance(call, schema.JumpFalseCall):
            return self._jump(position, call, chain_start)
        return _nothing  # freeing is for memory that this engine does not allocate

    def _replacing(self, position: int, careful: Step, then: Callable[[], Step]) -> Step:
        """The careful step; after success, `then` gives the step that replaces it."""

        def first() -> None:
            careful()
            self._steps[position] = then()

        return first

    def _settling(self, position: int, careful: Step, then: Callable[[], Step], *, changes: bool) -> Step:
        """A step whose first runs are careful: the very first, or the first with new sizes."""
        if not changes:
            return self._replacing(position, careful, then)
        if self._jumps:
            return careful  # it may run again, with other sizes, in the same call
        self._careful[position] = self._replacing(position, careful, then)
        return self._careful[position]

    # -- kernels -------------------------------------------------------------------------------------------------

    def _kernel(self, position: int, call: schema.KernelCall) -> Step:
        name, indices = self._operator(call), call.args or []
        fixed, changes = self._replaced.isdisjoint(indices), self._may_change(indices)
        arguments = [self.values[index] for index in indices]
        prepared = kernels.prepare(name, arguments, self._resizable, fixed=fixed, find_kernel=self._find_kernel)
        run: Step = prepared.bound() if fixed else prepared
        if not fixed:
            for (container, key), index in zip(prepared.places, indices, strict=False):
                if index in self._replaced:
                    self._subscribers.setdefault(index, []).append((container, key))
        if kernels.resizes(name):
            return self._resizing_kernel(position, name, run, arguments, changes=changes, fixed=fixed)
        writes = self._effects[position].writes
        if not writes:
            return run  # it works in place, and resizes nothing
        known = signature(name)
        outputs = known.outputs if known is not None else written(call, self._tables)
        reads = {item for place, index in enumerate(indices) if place not in outputs for item in self._tensors(index)}
        careful = self._careful_kernel(position, run, writes, reads)
        if changes and not self._jumps and kernels.is_data_dependent(name):
            return self._watching(careful, writes)
        # Numbers that change only together with sizes can be bound until they do.
        bind = not fixed and self._replaced.intersection(indices) <= self._followers
        return self._settling(position, careful, prepared.bound if bind else lambda: run, changes=changes)

    def _resizing_kernel(
        self, position: int, name: str, run: Step, arguments: Sequence[Any], *, changes: bool, fixed: bool
    ) -> Step:
        """A kernel that resizes its result itself, see `kernels`."""
        if name == "executorch_prim::et_copy_index.tensor":
            target = self.sizes_of(arguments[0])
            if target is not None and target not in self._growing:
                self._growing.append(target)
            return run
        if not changes or not fixed:
            return run
        return self._settling(position, run, lambda: kernels.specialized(name, arguments) or run, changes=True)

    def _careful_kernel(self, position: int, run: Step, writes: Sequence[int], reads: Collection[int]) -> Step:
        values, sizes = self.values, self._sizes

        def look() -> tuple[list[Sizes], list[Sizes]]:
            """The results, and those of them to make empty: an operand that is also a result already has its sizes."""
            results = [sizes[id(values[index])] for index in writes]
            read = [values[index] for index in reads]
            empty = [
                result for result in results if result.dynamic and not any(result.tensor is tensor for tensor in read)
            ]
            return results, empty

        known = look() if self._replaced.isdisjoint((*writes, *reads)) else None

        def careful() -> None:
            results, empty = known or look()
            for result in empty:
                result.tensor.resize_(0)
            try:
                run()
            except RuntimeError:
                if any(result.overflows for result in results):
                    self._settle(position, writes, results)
                raise
            for result in results:
                if not result.settled:
                    self._settle(position, writes, results)

        return careful

    def _settle(self, position: int, writes: Sequence[int], results: Sequence[Sizes]) -> None:
        faults = [result.settle() for result in results]
        for index, fault in zip(writes, faults, strict=True):
            if fault is not None:
                raise ExecutionError(f"resized value {index} {fault}", where=self._place(position))

    def _watching(self, careful: Step, writes: Sequence[int]) -> Step:
        """A careful step whose results may change sizes although the inputs do not."""
        last: list[torch.Size] = []

        def watching() -> None:
            nonlocal last
            careful()
            shapes = [self.values[index].shape for index in writes]
            if shapes != last:
                last = shapes
                self.sizes_changed()

        return watching

    # -- numbers, moves, jumps -----------------------------------------------------------------------------------

    def _scalar(self, position: int, indices: Sequence[int]) -> Step:
        function = kernels.scalar_function(self._operator(self._calls[position]))
        *arguments, result = indices
        values = self.values

        def compute() -> None:
            self._store(result, function(*[values[index] for index in arguments]))

        def watching() -> None:
            before = values[result]
            compute()
            if values[result] != before:
                self.sizes_changed()

        if result in self._followers:
            self._careful[position] = self._replacing(position, compute, lambda: _nothing)
            return self._careful[position]
        return compute if self._jumps or not self._resizable else watching

    def _move(self, call: schema.MoveCall) -> Step:
        def move() -> None:
            self._store(call.move_to, self.values[call.move_from])

        return move

    def _jump(self, position: int, call: schema.JumpFalseCall, chain_start: int) -> Step:
        destination = chain_start + call.destination_instruction

        def jump() -> int | None:
            condition = self.values[call.cond_value_index]
            if isinstance(condition, torch.Tensor) and condition.dtype == torch.bool:
                condition = bool(condition.all())
            if not isinstance(condition, bool):  # a move may have put anything there
                raise ExecutionError(
                    f"jumps on value {call.cond_value_index}, which is not a bool", where=self._place(position)
                )
            return None if condition else destination

        return jump

    # -- delegates -----------------------------------------------------------------------------------------------

    def _delegate(self, position: int, call: schema.DelegateCall) -> Step:
        reads, writes = self._effects[position].reads, self._effects[position].writes
        instance = self._make_delegate(call.delegate_index, reads, writes)
        self.delegates[position] = instance
        reads, writes = (
            tuple(index for index in indices if isinstance(self._tables[index], schema.Tensor))
            for indices in (reads, writes)
        )
        inputs = [self.values[index] for index in reads]
        outputs = [self.values[index] for index in writes]
        for container, indices in ((inputs, reads), (outputs, writes)):
            for place, index in enumerate(indices):
                if index in self._replaced:
                    self._subscribers.setdefault(index, []).append((container, place))

        def run() -> None:
            instance.execute(inputs, outputs)

        def careful() -> None:
            results = [self._sizes[id(tensor)] for tensor in outputs]
            for result in results:
                # The runtime makes a result smaller that is not of the largest sizes.
                if result.tensor.shape != result.largest:
                    result.resize(result.largest)
            instance.execute(inputs, outputs)
            self._settle(position, writes, results)

        if not self._may_change(writes):
            return self._replacing(position, careful, lambda: run)
        return careful if self._jumps else self._watching(careful, writes)


def _nothing() -> None:
    """The step of an instruction without effect."""
