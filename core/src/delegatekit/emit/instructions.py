"""The instructions of a method's plan, their kernels and delegates, and their origins."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final

from torch.fx import Node

from delegatekit_api.nodes import source_frames

from ..pte import schema


@dataclass(frozen=True)
class Origin:
    """The origin of instructions: debug handles, and the node with their source lines."""

    handles: tuple[int, ...] = ()
    node: Node | None = None


#: Instructions without a node of the program.
NOWHERE: Final = Origin()


class InstructionList:
    """The instructions under construction. `origin` is that of the next ones."""

    def __init__(self, *, stack_traces: bool) -> None:
        self.instructions: list[schema.Instruction] = []
        #: Debug handles of each instruction.
        self.handles: list[tuple[int, ...]] = []
        self.operators: list[schema.Operator] = []
        self.delegates: list[schema.BackendDelegate] = []
        self.origin = NOWHERE
        self._numbers: dict[str, int] = {}
        self._backends: list[str] = []  # of the delegates
        self._stacks: list[schema.FrameList] | None = [] if stack_traces else None

    def __len__(self) -> int:
        return len(self.instructions)

    def kernel(self, name: str, overload: str, arguments: list[int]) -> None:
        """Call a kernel: "aten::add", "out"."""
        full_name = f"{name}.{overload}"
        if full_name not in self._numbers:
            self._numbers[full_name] = len(self.operators)
            self.operators.append(schema.Operator(name, overload))
        self._append(schema.KernelCall(self._numbers[full_name], arguments))

    def primitive(self, name: str, *arguments: int) -> None:
        """Call one of the runtime's own kernels, "add.Scalar"."""
        packet, _, overload = name.partition(".")
        self.kernel(f"executorch_prim::{packet}", overload, list(arguments))

    def delegate(self, table: schema.BackendDelegate, backend: str, arguments: list[int]) -> None:
        """Call a delegate of its own."""
        self.delegates.append(table)
        self._backends.append(backend)
        self._append(schema.DelegateCall(len(self.delegates) - 1, arguments))

    def move(self, source: int, target: int) -> None:
        """Copy a number's value to another one."""
        self._append(schema.MoveCall(source, target))

    def jump_if_false(self, condition: int, destination: int = 0) -> schema.JumpFalseCall:
        """Jump if the condition is false; `land` sets the target, if it is not known yet."""
        jump = schema.JumpFalseCall(condition, destination)
        self._append(jump)
        return jump

    def land(self, jump: schema.JumpFalseCall) -> None:
        """Set a jump's target to the next instruction."""
        jump.destination_instruction = len(self.instructions)

    def actors(self, steps: Iterable[int], before: str) -> tuple[str, ...]:
        """Kernels and backends of some steps; `before` is the name of step 0."""
        names = []
        for step in steps:
            call = self.instructions[step - 1].instr_args if 0 < step <= len(self.instructions) else None
            if isinstance(call, schema.KernelCall):
                names.append(self.operators[call.op_index].full_name)
            elif isinstance(call, schema.DelegateCall):
                names.append(self._backends[call.delegate_index])
            elif step == 0 and before:
                names.append(before)
        return tuple(dict.fromkeys(names))

    def drop(self, needless: Set[int]) -> None:
        """Remove the instructions of these steps; jumps keep their targets."""
        if not needless:
            return
        before = [0]  # instruction -> number of remaining ones before it
        for step in range(1, len(self.instructions) + 1):
            before.append(before[-1] + (step not in needless))
        kept = [step not in needless for step in range(1, len(self.instructions) + 1)]
        for instruction in self.instructions:
            if isinstance(instruction.instr_args, schema.JumpFalseCall):
                jump = instruction.instr_args
                jump.destination_instruction = before[jump.destination_instruction]
        self.instructions[:] = compress(self.instructions, kept)
        self.handles[:] = compress(self.handles, kept)
        if self._stacks is not None:
            self._stacks[:] = compress(self._stacks, kept)

    def chain(self) -> schema.Chain:
        """The chain of the plan."""
        return schema.Chain(inputs=[], outputs=[], instructions=self.instructions, stacktrace=self._stacks)

    def _append(self, call: Any) -> None:
        self.instructions.append(schema.Instruction(call))
        self.handles.append(self.origin.handles)
        if self._stacks is not None:
            self._stacks.append(_stack(self.origin.node))


def _stack(node: Node | None) -> schema.FrameList:
    frames = () if node is None else source_frames(node)
    return schema.FrameList([schema.Frame(frame.path, frame.line, frame.function, frame.code) for frame in frames])
