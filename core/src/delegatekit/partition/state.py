"""The buffers that a delegate may keep inside itself, and the constants that it gets as inputs instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch.fx import Node

from delegatekit_api import BackendDescription, ConstantPartitioner, Partitioner, StatePartitioner

from ..edge import EdgeMethod
from ..plugins import check_answer
from .ask import blaming_partitioner


@dataclass(frozen=True)
class StateOwners:
    """The backends, asked about buffers that methods update, and about constants."""

    partitioners: Mapping[str, Partitioner]
    descriptions: Mapping[str, BackendDescription]
    #: Names of the buffers that several methods update: one delegate cannot keep them for all.
    shared: Collection[str] = ()

    def may_keep(self, backend: str, buffer: Node, method: EdgeMethod) -> bool:
        """True if a backend's delegate may keep a buffer of the method. Raises PluginError as `partition` does."""
        facts = self.descriptions.get(backend)
        if facts is None or not facts.owns_state or method.buffers[buffer].name in self.shared:
            return False
        partitioner = self.partitioners[backend]
        if not isinstance(partitioner, StatePartitioner):
            return True
        with blaming_partitioner(backend, "saying which buffers it keeps", buffer):
            reason = partitioner.state_reason(method.view, buffer)
        check_answer(reason, str | None, "what state_reason returned", f"backend {backend}")
        return reason is None

    def is_input(self, backend: str, constant: Node, method: EdgeMethod) -> bool:
        """True if a backend's delegates get a constant as an input. Raises PluginError as `partition` does."""
        partitioner = self.partitioners.get(backend)
        if not isinstance(partitioner, ConstantPartitioner):
            return False
        with blaming_partitioner(backend, "saying which constants are inputs", constant):
            found = partitioner.constant_is_input(method.view, constant)
        check_answer(found, bool, "what constant_is_input returned", f"backend {backend}")
        return found
