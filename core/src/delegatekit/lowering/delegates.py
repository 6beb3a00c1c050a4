"""The result of lowering: delegates, and methods whose steps are fallback operators and delegates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from delegatekit_api import BackendOptions, CompileSpec, NamedData
from delegatekit_api.devices import Estimate
from delegatekit_api.operators import OperatorProgram

from ..edge import EdgeMethod
from ..partition import Partition, PartitionPlan
from ..plugins import LoadedBackend


@dataclass(frozen=True)
class ChosenBackend:
    """A backend of this lowering with its options."""

    backend: LoadedBackend
    options: BackendOptions

    @property
    def compiles_together(self) -> bool:
        """True if it compiles all partitions of all methods in one call."""
        return self.backend.compiles_together(self.options)


@dataclass(frozen=True)
class Delegate:
    """One compiled partition."""

    partition: Partition
    chosen: ChosenBackend
    blob: tuple[bytes | bytearray | memoryview, ...]
    compile_specs: tuple[CompileSpec, ...]
    named_data: tuple[NamedData, ...]
    debug_handle_map: Mapping[int | str, tuple[int, ...]]
    #: Its expected cost.
    estimate: Estimate | None = None
    #: The call of a lowered module, if the delegate was compiled before.
    call: Node | None = None
    #: The delegate of that module's own program, whose debug handles are that program's.
    original: Delegate | None = None

    @property
    def results(self) -> tuple[tuple[Any, Any], ...]:
        """Its results: the node, or the call and the result's number, and the fake value."""
        if self.call is not None:
            return tuple(((self.call, number), value) for number, value in enumerate(self.call.meta["val"]))
        return tuple((node, node.meta["val"]) for node in self.partition.outputs)

    @property
    def blob_size(self) -> int:
        """Bytes of the blob."""
        return sum(len(part) for part in self.blob)


@dataclass(frozen=True)
class Replacement:
    """A partition that calls of its backend's own runtime operators compute."""

    partition: Partition
    chosen: ChosenBackend
    program: OperatorProgram


@dataclass(frozen=True)
class LoweredMethod:
    """A method as a sequence of steps: nodes that the runtime's own operators compute, delegates, and replacements."""

    edge: EdgeMethod
    plan: PartitionPlan
    steps: tuple[Node | Delegate | Replacement, ...]
    #: Call of a control flow operator -> its graphs, lowered.
    regions: Mapping[Node, tuple[LoweredMethod, ...]] = field(default_factory=dict)

    @property
    def delegates(self) -> tuple[Delegate, ...]:
        """The delegates in the order of their calls, those inside control flow included."""
        return tuple(part for part in self.parts if isinstance(part, Delegate))

    @property
    def parts(self) -> tuple[Delegate | Replacement, ...]:
        """What backends run, in order, that inside control flow included."""
        return tuple(self._parts())

    @property
    def overread_bytes(self) -> int:
        """Number of bytes beyond its inputs that a delegate of the method may read."""
        return max((delegate.chosen.backend.description.overread_bytes for delegate in self.delegates), default=0)

    def _parts(self) -> Iterator[Delegate | Replacement]:
        for step in self.steps:
            if not isinstance(step, Node):
                yield step
                continue
            for region in self.regions.get(step, ()):
                yield from region.parts
