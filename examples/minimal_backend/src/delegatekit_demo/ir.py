"""A partition during compilation: steps over numbered values, which the builder collects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegatekit_api import Operand, ProgramView
from delegatekit_toolkit.building import DebugHandles, PartitionBuilder
from delegatekit_toolkit.content import ConstantStore

if TYPE_CHECKING:
    import torch


class Builder(PartitionBuilder[int]):
    """Collects the steps of a partition; values are numbers."""

    def __init__(self, program: ProgramView) -> None:
        super().__init__(program)
        self.steps: list[tuple[str, int, int]] = []
        self.outputs: list[int] = []
        self.handles = DebugHandles()
        self.store = ConstantStore("demo_")
        self.constants = [(self.store.add(data), tuple(data.shape)) for data in program.constants.values()]
        self._places = {node: place for place, node in enumerate((*program.inputs, *program.constants))}

    def make_input(self, operand: Operand) -> int:
        """Inputs have the first numbers."""
        return self._places[operand.node]

    def make_constant(self, operand: Operand, data: torch.Tensor) -> int:
        """Constants have the next."""
        return self._places[operand.node]

    def make_output(self, value: int, operand: Operand) -> None:
        """Return a value."""
        self.outputs.append(value)

    def step(self, name: str, first: int, second: int) -> int:
        """Add a step: the number of its result."""
        self.handles.add(len(self.steps), self.debug_handle)
        self.steps.append((name, first, second))
        return len(self._places) + len(self.steps) - 1
