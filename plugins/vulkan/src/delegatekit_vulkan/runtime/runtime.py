"""The delegate on the host: graph, tape, recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from delegatekit_api import Availability, DelegatePayload, ExecutionError, FormatError, RuntimeUnavailableError
from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.signature import Signature, check_call

from ..blob.reader import read_graph
from ..ir.graph import Graph, SymInt
from .binding import WHERE, chosen_device
from .calls import write_tape
from .device import Device, open_device
from .kernels import KERNELS
from .memory import Value
from .recording import Recording
from .resident import Constants, States, lasting_blocks
from .state import numbers_in, states_of
from .tape import Tape
from .transfer import from_device, to_device

if TYPE_CHECKING:
    import torch

#: Recordings of other sizes that a delegate keeps.
_MOST_RECORDINGS: Final = 8


#: Sizes of a call's inputs, and numbers in them.
_Key: TypeAlias = "tuple[tuple[tuple[int, ...], ...], tuple[tuple[SymInt, int], ...]]"


@dataclass
class _Handle:
    """A loaded delegate."""

    graph: Graph
    signature: Signature
    device: Device
    constants: Constants
    #: Values kept for the next call.
    states: States
    #: Sizes of the inputs, and the numbers in them -> recording.
    recordings: dict[_Key, tuple[Recording, list[Value]]] = field(default_factory=dict)
    closed: bool = False


class VulkanRuntime:
    """A `DelegateRuntime` on the Vulkan device of the host."""

    def is_available(self) -> Availability:
        """Check that there is a device; the reason tells what to install."""
        try:
            chosen_device()
        except RuntimeUnavailableError as error:
            return Availability(False, error.what)
        return Availability(True)

    def init(self, payload: DelegatePayload) -> _Handle:
        """Check the blob, upload its constants, record the largest call. Raises FormatError."""
        graph = read_graph(payload)
        signature = Signature.of_payload(payload)
        sizes = tuple(tensor.sizes for tensor in graph.inputs)
        # All errors of the blob are found here, before it reaches the driver.
        kept = states_of(graph)
        write_tape(graph, KERNELS, sizes, {}, largest=True, states=lasting_blocks(kept))
        device = open_device()
        states = States(device, kept)
        handle = _Handle(graph, signature, device, Constants.share(device, graph), states)
        try:
            self._recording(handle, (sizes, ()))
        except BaseException:
            self.destroy(handle)
            raise
        device.save_cache()
        return handle

    def execute(self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once with this call's sizes and write the results into `outputs`. Raises ExecutionError."""
        key = _checked(handle, inputs, outputs)
        with _about_inputs():
            recording, results = self._recording(handle, key)
        _fill(handle, recording, inputs)
        _run(handle, recording)
        _hand_out(handle, recording, results, outputs)

    def profile(
        self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> Sequence[OperatorTime]:
        """As `execute`, and the time of each dispatch; nothing if the device has no clock. Raises ExecutionError."""
        if not handle.device.physical.tick:
            self.execute(handle, inputs, outputs)
            return ()
        key = _checked(handle, inputs, outputs)
        with _about_inputs():
            recording, tape, results = self._recorded(handle, key, timed=True)
        try:
            _fill(handle, recording, inputs)
            _run(handle, recording)
            _hand_out(handle, recording, results, outputs)
            return _dispatch_times(handle, recording, tape)
        finally:
            recording.close()

    def destroy(self, handle: _Handle) -> None:
        """Release the delegate; calling twice is harmless."""
        if handle.closed:
            return
        handle.closed = True
        while handle.recordings:
            recording, _ = handle.recordings.popitem()[1]
            recording.close()
        handle.states.close()
        handle.constants.release()

    def _recording(self, handle: _Handle, key: _Key) -> tuple[Recording, list[Value]]:
        """The recording for these sizes and numbers, made on first use."""
        found = handle.recordings.pop(key, None)
        if found is None:
            while len(handle.recordings) >= _MOST_RECORDINGS:
                oldest = next(iter(handle.recordings))
                handle.recordings.pop(oldest)[0].close()
            recording, _, outputs = self._recorded(handle, key)
            found = (recording, outputs)
        handle.recordings[key] = found  # the most recent one is last
        return found

    def _recorded(self, handle: _Handle, key: _Key, *, timed: bool = False) -> tuple[Recording, Tape, list[Value]]:
        sizes, numbers = key
        largest = sizes == tuple(tensor.sizes for tensor in handle.graph.inputs)
        with handle.constants.lock:
            tape = write_tape(
                handle.graph,
                KERNELS,
                sizes,
                handle.constants.blocks,
                largest=largest,
                states=handle.states.blocks,
                numbers=dict(numbers),
            )
            inputs = [tape.value(tensor) for tensor in handle.graph.inputs]
            outputs = [tape.value(tensor) for tensor in handle.graph.outputs]
            recording = Recording(handle.device, tape, handle.constants, handle.states, inputs, outputs, timed=timed)
        return recording, tape, outputs


def _checked(handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> _Key:
    """The key of the recording for a call. Raises ExecutionError for inputs that do not match."""
    if handle.closed:
        raise ExecutionError("was destroyed", where=WHERE)
    check_call(handle.signature, inputs, outputs, WHERE)
    return _key(handle, inputs)


@contextmanager
def _about_inputs() -> Iterator[None]:
    """Report errors of recording within the block as errors of a call's inputs."""
    try:
        yield
    except FormatError as error:
        raise ExecutionError(f"cannot run with these inputs: {error.what}", where=error.where) from error


def _run(handle: _Handle, recording: Recording) -> None:
    """Execute. Raises ExecutionError, also if an index is out of range."""
    recording.run()
    if recording.fault is not None:
        operator = handle.graph.nodes[recording.fault].operator
        raise ExecutionError(
            f"call {recording.fault} ({operator:.60}) has an index out of range",
            where=WHERE,
            hint="devices read another element there, without an error",
        )


def _hand_out(handle: _Handle, recording: Recording, results: Sequence[Value], outputs: Sequence[torch.Tensor]) -> None:
    """Write the results of a call into the caller's tensors."""
    for index, (output, declared) in enumerate(zip(outputs, handle.graph.outputs, strict=True)):
        shape = results[index].shape
        if tuple(output.shape) != shape:
            output.resize_(shape)
        from_device(recording.output_words(index), declared, output)


def _dispatch_times(handle: _Handle, recording: Recording, tape: Tape) -> list[OperatorTime]:
    operators = [node.operator for node in handle.graph.nodes]
    return [
        OperatorTime(f"{operators[item.call]} ({item.shader})", seconds, item.call)
        for item, seconds in zip(tape.dispatches, recording.seconds(), strict=True)
    ]


def _key(handle: _Handle, inputs: Sequence[torch.Tensor]) -> _Key:
    sizes = tuple(tuple(tensor.shape) for tensor in inputs)
    return sizes, tuple(numbers_in(handle.graph, inputs).items())


def _fill(handle: _Handle, recording: Recording, inputs: Sequence[torch.Tensor]) -> None:
    """Write a call's inputs."""
    for index, (tensor, declared) in enumerate(zip(inputs, handle.graph.inputs, strict=True)):
        to_device(tensor, declared, recording.input_words(index), f"input {index}")
