"""Assembles the file: an execution plan for each lowered method, and what the methods store together."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from delegatekit_api import NamedData

from ..lowering import LoweredMethod
from ..pte import PteImage, schema
from ..pte.estimates import ESTIMATES_KEY, estimates_to_json
from ..pte.manifest import MANIFEST_KEY
from .arena import ArenaReport, MemoryOptions, Spaces
from .external import External, Outside
from .method import MethodEmitter, overread_bytes


@dataclass(frozen=True)
class Emitted:
    """The image of the file, and for each method the debug handles of its instructions, in their order."""

    image: PteImage
    handles: Mapping[str, tuple[tuple[int, ...], ...]]
    #: The planned memory of each method, space by space.
    arenas: Mapping[str, tuple[ArenaReport, ...]] = field(default_factory=dict)


@dataclass
class Shared:
    """What the methods of a file store together."""

    stack_traces: bool = False
    constants: list[torch.Tensor] = field(default_factory=list)
    mutable_state: list[torch.Tensor] = field(default_factory=list)
    blobs: list[Sequence[bytes | bytearray | memoryview]] = field(default_factory=list)
    named_data: list[NamedData] = field(default_factory=list)
    outside: Outside = field(default_factory=Outside)
    spaces: Spaces = field(default_factory=lambda: Spaces(MemoryOptions()))
    _index: dict[Any, int] = field(default_factory=dict)

    def place(self, table: schema.Tensor, tensor: torch.Tensor, name: str | None) -> None:
        """Put a constant into the file, or under a key into a data file, and note in its table where it is.

        Data_buffer_idx is counted from 1; the same storage gives the same number.
        """
        if not self.outside.place(table, tensor, name):
            table.data_buffer_idx = self._number(self.constants, tensor, "constant")

    def state(self, tensor: torch.Tensor) -> int:
        """The data_buffer_idx of a mutable buffer's initial value."""
        return self._number(self.mutable_state, tensor, "state")

    def _number(self, tensors: list[torch.Tensor], tensor: torch.Tensor, kind: str) -> int:
        key = (kind, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if key not in self._index or tensor.numel() == 0:
            tensors.append(tensor)
            self._index[key] = len(tensors)
        return self._index[key]


def emit(
    methods: Mapping[str, LoweredMethod],
    producer: str,
    *,
    external: External = False,
    stack_traces: bool = False,
    memory: MemoryOptions | None = None,
) -> Emitted:
    """Assemble the file's image. `producer` is "delegatekit 0.1.0". Weights stay where they are.

    `external` chooses the constants and named data that go into data files beside the .pte. With `stack_traces` the
    file says for each instruction which of the user's lines it comes from. `memory` says how memory is planned.

    Raises UnsupportedError, with the user's source line, for an operator that nobody can run.
    """
    shared = Shared(stack_traces, outside=Outside(external), spaces=Spaces(memory or MemoryOptions()))
    state = _shared_state(methods)
    if len(methods) > 1:
        shared.spaces.keep(_buffers(methods, state), max(map(overread_bytes, methods.values())))
    emitters = {name: MethodEmitter(name, method, shared) for name, method in methods.items()}
    plans = tuple(emitter.plan() for emitter in emitters.values())
    owners = [
        {
            "method": name,
            "index": index,
            "outputs": len(delegate.results),
            "distribution": delegate.chosen.backend.distribution,
            "version": delegate.chosen.backend.version,
            "api": str(delegate.chosen.backend.description.api_version),
        }
        for name, method in methods.items()
        for index, delegate in enumerate(method.delegates)
    ]
    content: dict[str, Any] = {"producer": producer, "delegates": owners}
    parameters = {name: list(method.edge.parameters) for name, method in methods.items() if method.edge.parameters}
    if parameters:
        content["parameters"] = parameters
    if state:
        content["shared_state"] = sorted(state)
    named_data = shared.outside.named_data(shared.named_data)
    data_files = shared.outside.files()
    if data_files:
        content["data_files"] = shared.outside.keys_of_backends()
    manifest = json.dumps(content, sort_keys=True).encode()
    own = [NamedData(MANIFEST_KEY, manifest)]
    estimates = {name: [delegate.estimate for delegate in method.delegates] for name, method in methods.items()}
    if any(any(of_method) for of_method in estimates.values()):
        own.append(NamedData(ESTIMATES_KEY, estimates_to_json(estimates)))
    image = PteImage(
        plans=plans,
        constants=tuple(shared.constants),
        mutable_state=tuple(shared.mutable_state),
        delegate_blobs=tuple(shared.blobs),
        named_data=(*named_data, *own),
        data_files=data_files,
    )
    handles = {name: tuple(emitter.handles) for name, emitter in emitters.items()}
    return Emitted(image, handles, {name: emitter.arenas for name, emitter in emitters.items()})


def _shared_state(methods: Mapping[str, LoweredMethod]) -> set[str]:
    """Names of the buffers that several methods update and that are one tensor in the module."""
    found: dict[str, list[torch.Tensor]] = {}
    for method in methods.values():
        for node, buffer in method.edge.buffers.items():
            if node not in method.plan.owned_buffers:
                found.setdefault(buffer.name, []).append(buffer.initial)
    return {
        name
        for name, tensors in found.items()
        if len(tensors) > 1 and len({tensor.data_ptr() for tensor in tensors}) == 1
    }


def _buffers(methods: Mapping[str, LoweredMethod], shared: Collection[str]) -> list[tuple[int, list[tuple[str, str]]]]:
    """The bytes of each buffer that a method of the file keeps, and the methods and names that know it."""
    found: dict[tuple[str, str], tuple[int, list[tuple[str, str]]]] = {}
    for method, lowered in methods.items():
        for node, buffer in lowered.edge.buffers.items():
            if node not in lowered.plan.owned_buffers:
                key = ("", buffer.name) if buffer.name in shared else (method, buffer.name)
                found.setdefault(key, (buffer.initial.nbytes, []))[1].append((method, buffer.name))
    return list(found.values())
