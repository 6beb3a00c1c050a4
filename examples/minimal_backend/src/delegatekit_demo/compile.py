"""From a partition to a blob: the toolkit walks over the calls, the rows' functions add steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegatekit_api import Operand, PreprocessResult, ProgramView
from delegatekit_toolkit.building import DebugHandles, PartitionBuilder
from delegatekit_toolkit.content import ConstantStore

from .blob import Program, write_blob
from .support import TABLE

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


def compile_partition(view: ProgramView) -> PreprocessResult:
    """The partition as a blob; its constants become named data, keyed by their content."""
    b = Builder(view)
    b.build(TABLE)
    program = Program(len(view.inputs), tuple(b.constants), tuple(b.steps), tuple(b.outputs))
    return PreprocessResult(write_blob(program), named_data=b.store.named_data, debug_handle_map=b.handles.mapping)
