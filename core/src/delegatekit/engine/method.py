"""One method, ready to run: its values in their memory, its instructions, and the conversion of inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from time import monotonic
from typing import Any, NoReturn

import torch
from torch.utils._pytree import TreeSpec, tree_unflatten

from delegatekit_api import ExecutionError, TensorSpec
from delegatekit_api.devices import Estimate
from delegatekit_api.profiling import OperatorTime

from ..errors.foreign import as_ours
from ..plugins.apart import until
from ..pte import PteFile, schema
from ..pte.arguments import tensor_spec
from ..pte.axes import fitting_axes
from ..pte.dataflow import callee, calls
from ..pte.estimates import estimates_of
from ..pte.manifest import Manifest, Owner, owners_of, read_manifest
from .calling import Inputs, inputs_of
from .delegate import DelegateInstance, Runtimes, payload
from .input_sizes import InputSizes
from .instructions import Instructions, Recorder
from .memory import Memory, SharedBuffers, find_buffers
from .structure import read_structure


class Method:
    """One instance of a method of a loaded program. Call it with the module's own inputs.

    It holds an arena, the method's buffers and an instance of each delegate. One thread calls it at a time: a call from
    a second thread raises ExecutionError. Concurrent threads use an instance each.
    """

    def __init__(
        self,
        file: PteFile,
        plan: schema.ExecutionPlan,
        runtimes: Runtimes,
        shared: SharedBuffers | None = None,
        time_limit: float | None = None,
    ) -> None:
        self.name = str(plan.name)
        #: The file that it is of.
        self.file = file
        self._runtimes = runtimes
        self._plan = plan
        self._closed = False
        #: Limit of a call in seconds, None for no limit. The call stops after the instruction in which it is exceeded.
        self.time_limit = time_limit
        shared = shared or SharedBuffers()
        self._memory = Memory(file, plan, shared)
        # Two methods that share buffers must not run at the same time, either.
        self._lock = shared.lock if self._memory.has_shared else Lock()
        self._values = [self._materialize(value.val) for value in plan.values or ()]
        outputs = self._manifest.outputs_of(self.name)
        self._instructions = Instructions(plan, self._values, outputs, self._new_delegate, self._find_kernel)

    # -- calling -------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, clone_outputs: bool = True, **kwargs: Any) -> Any:
        """Run once and return the outputs in the structure of the module's results.

        `clone_outputs=False` returns views of the arena, which the next call overwrites. Raises ExecutionError for
        inputs of another count or dtype than the method was lowered for, or of sizes that it does not accept, and for a
        call that takes longer than the method's `time_limit`.
        """
        flat = self._inputs.flatten(args, kwargs)
        with self._running():
            results = self._run(flat, clone=clone_outputs)
        structure = self._output_structure
        if structure is not None:
            try:
                return tree_unflatten(results, structure)
            except Exception as error:  # from a container's own code, or a damaged file
                what = f"its outputs do not make a {structure.type.__name__}: {type(error).__name__}: {error}"
                raise ExecutionError(what, where=f"method {self.name}", hint="`run` returns them flat") from error
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Run once on flat inputs; returns flat outputs, tensors among them as views of the arena."""
        with self._running():
            return self._run(inputs, clone=False)

    def record(self, inputs: Sequence[Any], recorder: Recorder) -> None:
        """Run once on flat inputs, with `recorder` running each instruction."""
        with self._running():
            self._run(inputs, clone=False, recorder=recorder)

    def record_operators(self, inputs: Sequence[Any]) -> dict[int, list[OperatorTime]]:
        """Run once on flat inputs; returns the times of the operators inside delegates, by instruction position.

        A delegate whose runtime does not report them has no operators.
        """
        with self._running():
            delegates = self._instructions.delegates
            found: dict[int, list[OperatorTime]] = {position: [] for position in delegates}
            try:
                for position, delegate in delegates.items():
                    delegate.times = found[position]
                self._run(inputs, clone=False)
            finally:
                for delegate in delegates.values():
                    delegate.times = None
            return found

    @property
    def instructions(self) -> tuple[str, ...]:
        """The callees of the instructions, in their order: "aten::add.out", "delegate 0", "MoveCall"."""
        return tuple(callee(self._plan, call) for call in calls(self._plan))

    @property
    def owners(self) -> Mapping[int, str]:
        """The makers of the delegates of instructions, by position: "delegatekit-NAME 0.1.0", or the delegate id."""
        return owners_of(self._manifest, self._plan)

    @property
    def estimates(self) -> Mapping[int, Estimate]:
        """The compilers' estimates of the delegates that instructions call, on their devices, by position."""
        return estimates_of(self.file, self._plan)

    def reset(self) -> None:
        """Put the buffers that the method updates back to their initial values, shared ones included.

        Delegates that keep buffers inside themselves are initialized again.
        """
        with self._running():
            self._memory.reset()
            self._instructions.reset()

    def close(self) -> None:
        """Release the delegates, after a running call. The method cannot be called afterwards."""
        with self._lock:
            self._closed = True
            self._instructions.close()

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """The buffers that the method updates, by name: views of its memory, to read and to write between calls.

        A buffer that has no name in the file is called "value 7", by its index. Buffers that a delegate keeps inside
        itself are not included.
        """
        return {name: self._values[index].detach() for name, index in self._buffers.items()}

    @cached_property
    def inputs(self) -> tuple[TensorSpec | None, ...]:
        """Specs of the flat inputs; None for an input that is not a tensor."""
        return tuple(self._spec(index) for index in self._plan.inputs or ())

    @property
    def fixed_inputs(self) -> dict[int, Any]:
        """Position of an input that is not a tensor -> the value that the method was lowered for."""
        indices = enumerate(self._plan.inputs or ())
        return {place: self._values[index] for place, index in indices if self.inputs[place] is None}

    @cached_property
    def outputs(self) -> tuple[TensorSpec | None, ...]:
        """Specs of the flat outputs; None for an output that is not a tensor."""
        return tuple(self._spec(index) for index in self._plan.outputs or ())

    @property
    def arena_size(self) -> int:
        """Bytes of planned memory."""
        return sum(self._plan.non_const_buffer_sizes or ())

    # -- values --------------------------------------------------------------------------------------------------

    def _spec(self, index: int) -> TensorSpec | None:
        return tensor_spec((self._plan.values or [])[index].val)

    def _materialize(self, value: Any) -> Any:
        if isinstance(value, schema.Tensor):
            return self._memory.tensor(value)
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

    @cached_property
    def _buffers(self) -> dict[str, int]:
        return find_buffers(self._plan, self._manifest.outputs_of(self.name))

    @cached_property
    def _manifest(self) -> Manifest:
        return read_manifest(self.file)

    def _new_delegate(self, index: int, reads: Sequence[int], writes: Sequence[int]) -> DelegateInstance:
        table = (self._plan.delegates or [])[index]
        where = f"method {self.name}, delegate {table.id}"
        runtime = self._runtimes.get(str(table.id), self._manifest.owner(self.name, index), where)
        values: Any = self._plan.values
        inputs, outputs = ([values[item].val for item in items] for items in (reads, writes))
        return DelegateInstance(runtime, payload(self.file, table, inputs, outputs, self.name), where)

    def _find_kernel(self, name: str) -> Callable[..., None]:
        library = name.partition("::")[0]
        where = f"method {self.name}, operator {name}"
        owner = self._manifest.libraries.get(library, Owner())
        return self._runtimes.get(library, owner, where).kernel(name, where)

    # -- running -------------------------------------------------------------------------------------------------

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Exclude other threads while the memory is in use, without waiting for them."""
        if not self._lock.acquire(blocking=False):
            raise ExecutionError(
                "is already running, in another thread",
                where=f"method {self.name}",
                hint="give each thread an instance of its own: program.new_session()[name]",
            )
        try:
            if self._closed:
                raise ExecutionError("was closed", where=f"method {self.name}")
            with as_ours(lambda fault: ExecutionError(fault, where=f"method {self.name}")):
                yield
        finally:
            self._lock.release()

    def _run(self, inputs: Sequence[Any], *, clone: bool, recorder: Recorder | None = None) -> list[Any]:
        deadline = None if self.time_limit is None else monotonic() + self.time_limit
        with torch.no_grad():
            self._set_inputs(inputs)
            if deadline is None:
                self._instructions.run(recorder=recorder)
            else:
                with until(deadline):
                    self._instructions.run(deadline, recorder)
            results = [self._values[index] for index in self._plan.outputs or ()]
            return [self._result(result, clone) if isinstance(result, torch.Tensor) else result for result in results]

    def _result(self, tensor: torch.Tensor, clone: bool) -> torch.Tensor:
        if clone:
            return tensor.clone()
        # The next call may give the method's own tensor other sizes.
        return tensor if self._instructions.sizes_of(tensor) is None else tensor.detach()

    # -- inputs and outputs --------------------------------------------------------------------------------------

    def _set_inputs(self, inputs: Sequence[Any]) -> None:
        indices = self._plan.inputs or []
        if len(inputs) != len(indices):
            raise ExecutionError(f"takes {len(indices)} inputs, got {len(inputs)}", where=f"method {self.name}")
        wrong = self._input_sizes.refusal(inputs, self._inputs.describe)
        if wrong is not None:
            self._refuse_input(*wrong)
        for position, (index, given) in enumerate(zip(indices, inputs, strict=True)):
            bound = self._values[index]
            if not isinstance(bound, torch.Tensor):
                if type(given) is not type(bound) or given != bound:
                    self._refuse_input(position, f"was lowered for the value {bound!r}, got {_described(given)}")
            elif not isinstance(given, torch.Tensor):
                self._refuse_input(position, f"is {_described(given)}, not a tensor")
            elif given.dtype != bound.dtype:
                self._refuse_input(position, f"has dtype {given.dtype}, not {bound.dtype}")
            else:
                if given.shape != bound.shape:
                    self._resize_input(position, bound, given.shape)
                bound.copy_(given)

    def _resize_input(self, position: int, bound: torch.Tensor, shape: torch.Size) -> None:
        sizes = self._instructions.sizes_of(bound)
        if sizes is None or not sizes.takes(shape):
            expected = tuple(bound.shape) if sizes is None else sizes.described
            self._refuse_input(position, f"has shape {tuple(shape)}, not {expected}")
            return
        # Before anything else can fail: the instructions must not assume that they have this input's sizes.
        self._instructions.sizes_changed()
        sizes.resize(shape)

    def _refuse_input(self, position: int, what: str) -> NoReturn:
        raise ExecutionError(what, where=f"method {self.name}, input {self._inputs.describe(position)}")

    @cached_property
    def _inputs(self) -> Inputs:
        return inputs_of(self.file, self._plan)

    @cached_property
    def _input_sizes(self) -> InputSizes:
        shapes = [None if spec is None else spec.shape for spec in self.inputs]
        return InputSizes(fitting_axes(self._manifest.axes.get(self.name, ()), shapes))

    @cached_property
    def _output_structure(self) -> TreeSpec | None:
        container = self._plan.container_meta_type
        structure = read_structure(container.encoded_out_str if container is not None else None)
        # Some writers put the structure of one output where the method returns several: use it only if it fits.
        fits = structure is not None and structure.num_leaves == len(self._plan.outputs or ())
        return structure if fits else None


def check_time_limit(given: object) -> None:
    """Raise ExecutionError for anything but None or a number of seconds."""
    if given is not None and not (isinstance(given, int | float) and not isinstance(given, bool) and given >= 0):
        raise ExecutionError(f"time_limit is {given!r}, not a number of seconds")


def _described(given: Any) -> str:
    """A short description of a caller's argument."""
    if given is None or isinstance(given, bool | int | float | str):
        return repr(given)
    return f"a {type(given).__name__}"
