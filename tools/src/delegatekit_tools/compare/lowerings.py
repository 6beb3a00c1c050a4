"""Compilations of partitioned methods by the backends of one side of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from delegatekit.compiling import Compiling
from delegatekit.engine import Method, load
from delegatekit.lowering import ChosenBackend
from delegatekit.partition import PartitionedMethod
from delegatekit.pipeline import compiled
from delegatekit_api import Partitioner


@dataclass
class Lowerings:
    """The backends, and a count of their compilations."""

    chosen: Mapping[str, ChosenBackend]
    #: The precision of float32 on each.
    precisions: Mapping[str, str]
    compiling: Compiling | None = None
    count: int = 0

    @property
    def partitioners(self) -> Mapping[str, Partitioner]:
        """Partitioners for one more lowering."""
        return {name: choice.backend.create_partitioner(choice.options) for name, choice in self.chosen.items()}

    @contextmanager
    def loaded(self, method: PartitionedMethod) -> Iterator[Method]:
        """A method with this plan, compiled and loaded. Raises what compiling and loading raise."""
        self.count += 1
        name = method.edge.name
        program = compiled({name: method}, self.chosen, compiling=self.compiling)
        with load(program.buffer) as loaded:
            yield loaded[name]

    def run(self, method: PartitionedMethod, inputs: Sequence[Any]) -> list[Any]:
        """The results of a method with this plan. Raises what compiling, loading and running raise."""
        with self.loaded(method) as loaded:
            return [item.clone() if isinstance(item, torch.Tensor) else item for item in loaded.run(inputs)]
