"""A proxy of a runtime in another process: the same protocol, tensors by shared memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final

import torch

from delegatekit_api import (
    Availability,
    BackendDescription,
    DelegatePayload,
    ExecutionError,
    FormatError,
    RuntimeUnavailableError,
)
from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.json_text import plain

from .child import START, Child, DiedError, Giver, the_deadline, using
from .memory import Arena, Slot, write_pieces

_ANEW: Final = "the next call restarts the process; the state of delegates is lost"


@dataclass
class _Opened:
    """A delegate in a process."""

    child: Child
    number: int
    arena: Arena
    give: Giver
    #: Sizes of inputs and outputs in the last call.
    shapes: list[torch.Size]
    executed: bool = False


@dataclass
class _Handle:
    """A delegate; `opened` is None until it is loaded in a process, and again after that has died."""

    payload: DelegatePayload | None
    opened: _Opened | None = None


class RuntimeApart:
    """Runs the delegates of a backend in a process of its own, shared by all runtimes of the backend here.

    The process is started on first use. When it dies, the running call fails, and the next
    starts another, in which delegates are loaded again as they are called.
    """

    def __init__(
        self, backend: object, description: BackendDescription, make: Callable[[], Child] | None = None
    ) -> None:
        """The process, which `make` starts, ends when `backend`, the loaded backend, is garbage collected."""
        self._backend = backend
        self._make = make or partial(Child, description.name)
        self._where = f"backend {description.name}, delegate {description.delegate_id}"
        self._owns_state = description.owns_state
        self._gap = description.overread_bytes

    def is_available(self) -> Availability:
        """The runtime's own answer; not available if its process dies during the question."""
        try:
            with using(self._backend, self._make) as child:
                answer = child.ask({"do": "available"}, (), monotonic() + START)
        except DiedError as death:
            return Availability(False, f"the process of the runtime {death}")
        return Availability(bool(answer["available"]), str(answer["reason"]))

    def init(self, payload: DelegatePayload) -> Any:
        """Load a delegate there. Raises what the runtime raises, and FormatError if the process dies."""
        handle = _Handle(payload)
        with using(self._backend, self._make) as child:
            self._open(handle, payload, child)
        return handle

    def execute(self, handle: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once there. Raises what the runtime raises, and ExecutionError if the process dies."""
        self._called("execute", handle, inputs, outputs)

    def profile(
        self, handle: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> Sequence[OperatorTime]:
        """Run once there; returns the operators' times, none without a profile. Raises as `execute` does."""
        answer = self._called("profile", handle, inputs, outputs)
        return [OperatorTime(name, seconds, key) for name, seconds, key in answer["operators"]]

    def _called(
        self, do: str, handle: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> Mapping[str, Any]:
        payload = handle.payload
        if payload is None:
            raise ExecutionError("was destroyed", where=self._where)
        with using(self._backend, self._make) as child:
            opened = handle.opened
            if opened is None or opened.child is not child:
                handle.opened = None
                if opened is not None and opened.executed and self._owns_state:
                    raise ExecutionError(
                        "has lost what it kept inside itself: the process of its runtime has ended since the last call",
                        where=self._where,
                        hint="the next call begins with the initial values",
                    )
                opened = self._open(handle, payload, child)
            try:
                return _run(do, opened, inputs, outputs, self._where)
            except DiedError as death:
                handle.opened = None
                raise ExecutionError(f"the process of its runtime {death}", where=self._where, hint=_ANEW) from death

    def destroy(self, handle: Any) -> None:
        """Release a handle."""
        opened, handle.opened, handle.payload = handle.opened, None, None
        if opened is not None and opened.child.alive:
            opened.child.destroy(opened.number)

    def _open(self, handle: _Handle, payload: DelegatePayload, child: Child) -> _Opened:
        number = child.new_number()
        try:
            arena = Arena(payload.inputs, payload.outputs, self._gap, None)
            file, places = write_pieces([payload.blob, *(spec.value for spec in payload.compile_specs)])
        except OSError as error:
            raise RuntimeUnavailableError(f"there is no memory to share: {error}", where=self._where) from error
        request = {
            "do": "init",
            "handle": number,
            "delegate_id": payload.delegate_id,
            "places": places,
            "keys": [spec.key for spec in payload.compile_specs],
            "inputs": plain(payload.inputs),
            "outputs": plain(payload.outputs),
            "numbers": list(payload.numbers),
            "method": payload.method,
            "named": list(payload.named_data),
            "gap": self._gap,
        }

        def give(wanted: Mapping[str, Any]) -> Any:
            return payload.named_data[wanted["key"]] if wanted["ask"] == "named" else payload.as_program(wanted["keys"])

        try:
            child.ask(request, (file, arena.file), the_deadline(), give)
        except DiedError as death:
            raise FormatError(
                f"loading it ended the process of its runtime, which {death}",
                where=self._where,
                hint="the blob is damaged, or not of the kind that the runtime takes; or the runtime is broken",
            ) from death
        finally:
            os.close(file)
            arena.close_file()
        shapes = [slot.largest for slot in (*arena.inputs, *arena.outputs)]
        handle.opened = _Opened(child, number, arena, give, shapes)
        return handle.opened


def _run(
    do: str, opened: _Opened, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], where: str
) -> Mapping[str, Any]:
    arena = opened.arena
    _check(arena.inputs, inputs, where, "input")
    _check(arena.outputs, outputs, where, "output")
    message: dict[str, Any] = {"do": do, "handle": opened.number}
    shapes = [tensor.shape for tensor in (*inputs, *outputs)]
    if shapes != opened.shapes:
        message["shapes"] = shapes
    with torch.no_grad():
        for slot, tensor in zip(arena.inputs, inputs, strict=True):
            slot.tensor(tensor.shape).copy_(tensor)
        # The other process has them from now on, even if the runtime refuses them.
        opened.executed, opened.shapes = True, shapes
        answer = opened.child.ask(message, (), the_deadline(), opened.give)
        changed = {index: (shape, strides) for index, shape, strides in answer.get("changed", ())}
        for index, (slot, tensor) in enumerate(zip(arena.outputs, outputs, strict=True)):
            if index in changed:
                shape, strides = changed[index]
                if list(tensor.shape) != shape:
                    tensor.resize_(shape)
                tensor.copy_(slot.view(shape, strides))
            else:
                tensor.copy_(slot.tensor(tensor.shape))
    return answer


def _check(slots: Sequence[Slot], tensors: Sequence[torch.Tensor], where: str, kind: str) -> None:
    """Raise ExecutionError for tensors that do not fit the memory; other checks are left to the runtime."""
    if len(slots) != len(tensors):
        raise ExecutionError(f"takes {len(slots)} {kind}s, got {len(tensors)}", where=where)
    for index, (slot, tensor) in enumerate(zip(slots, tensors, strict=True)):
        if tensor.dtype != slot.dtype:
            raise ExecutionError(f"{kind} {index} has dtype {tensor.dtype}, not {slot.dtype}", where=where)
        if tensor.numel() > slot.capacity:
            sizes = f"{tuple(tensor.shape)}, more than {tuple(slot.largest)}"
            raise ExecutionError(f"{kind} {index} has sizes {sizes}", where=where)
