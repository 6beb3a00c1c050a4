"""Checks the writes of a method's instructions: to no constant, and over no planned value that is live."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delegatekit_api import FormatError

from . import schema
from .dataflow import Effect, calls, effects
from .kernels import IN_PLACE
from .liveness import find_overwritten

DAMAGED: Final = "the file is damaged, or was written by a faulty tool"


class WriteCheck:
    """Finds invalid writes: to constants, and over planned values that are still read."""

    def __init__(self, plan: schema.ExecutionPlan, where: str, delegate_outputs: Mapping[int, int]) -> None:
        self.plan = plan
        self.delegate_outputs = delegate_outputs
        self.where = where
        self.values = [value.val for value in plan.values or ()]
        self.calls = calls(plan)
        # Per buffer: start offsets of the live values, sorted, with (end, value, last read).
        self.active: dict[int, tuple[list[int], list[tuple[int, int, int]]]] = {}
        self.last_read: dict[int, int] = {}

    def run(self) -> None:
        """Raise FormatError at the first invalid write."""
        found = effects(self.plan, self.delegate_outputs)
        self._check_constants(found)
        if any(isinstance(call, schema.JumpFalseCall | schema.MoveCall) for call in self.calls):
            self._check_jumping(found)
            return
        for step, effect in enumerate(found):
            for index in (*effect.reads, *effect.through):
                self.last_read[index] = step
        inputs = set(self.plan.inputs or ())
        for index, value in enumerate(self.values):
            # A value with an initial value keeps its content from call to call.
            if isinstance(value, schema.Tensor) and value.allocation_info is not None and value.data_buffer_idx:
                self.last_read[index] = len(found)
                self._write(index, -1)
            elif index in inputs:
                self._write(index, -1)
        for step, effect in enumerate(found):
            for index in effect.writes:
                self._write(index, step, over_operand=self._takes_over(index, step, effect))

    def _check_jumping(self, found: Sequence[Effect]) -> None:
        delegates = {call.delegate_index for call in self.calls if isinstance(call, schema.DelegateCall)}
        if not delegates <= self.delegate_outputs.keys():
            return  # with jumps, a delegate's writes must be known, not inferred
        fault = find_overwritten(self.plan, found, self._takes_over)
        if fault is not None:
            raise FormatError(
                f"value {fault.value} overwrites value {fault.other}, which is still to be read",
                where=self._at(fault.step),
                hint=DAMAGED,
            )

    def _check_constants(self, found: Sequence[Effect]) -> None:
        """Constants are in the file, mapped read-only: writing to one would end the process."""
        constants = {index for index, value in enumerate(self.values) if _is_constant(value)}
        moves = {(call.move_from, call.move_to) for call in self.calls if isinstance(call, schema.MoveCall)}
        targets: dict[int, list[int]] = {}
        for source, target in moves:
            targets.setdefault(source, []).append(target)
        reached = list(constants)
        while reached:  # after a move, the target is the constant
            new = [target for target in targets.get(reached.pop(), ()) if target not in constants]
            constants.update(new)
            reached.extend(new)
        written = [(-1, tuple(self.plan.inputs or ()))]
        for step, call in enumerate(self.calls):
            if not isinstance(call, schema.MoveCall):
                written.append((step, (*found[step].writes, *found[step].updates)))
        for step, indices in written:
            for index in indices:
                if index in constants:
                    raise FormatError(
                        f"value {index} is a constant, but is written", where=self._at(step), hint=DAMAGED
                    )

    def _at(self, step: int) -> str:
        return f"{self.where}, instruction {step}" if step >= 0 else f"{self.where}, inputs"

    def _takes_over(self, index: int, step: int, effect: Effect) -> bool:
        """True if an instruction writes a value over one that it reads, exactly, and its kernel may do so."""
        call = self.calls[step] if step < len(self.calls) else None
        if not isinstance(call, schema.KernelCall):
            return False
        if (self.plan.operators or [])[call.op_index].full_name not in IN_PLACE:
            return False
        mine = _span(self.values[index])
        spans = [span for span in (_span(self.values[other]) for other in effect.reads) if span is not None]
        met = [span for span in spans if mine and span[0] == mine[0] and span[1] < mine[2] and mine[1] < span[2]]
        return bool(met) and all(span == mine for span in met)

    def _write(self, index: int, step: int, *, over_operand: bool = False) -> None:
        value = self.values[index]
        if not isinstance(value, schema.Tensor) or value.allocation_info is None or not value.nbytes:
            return
        start = value.allocation_info.offset
        end = start + value.nbytes
        starts, spans = self.active.setdefault(value.allocation_info.memory_id, ([], []))
        position = bisect.bisect_left(starts, start)
        if position and spans[position - 1][0] > start:
            position -= 1
        while position < len(starts) and starts[position] < end:
            _, other, last = spans[position]
            if other != index and last >= step + over_operand:
                raise FormatError(
                    f"value {index} overwrites value {other}, which is read until instruction {last}",
                    where=self._at(step),
                    hint=DAMAGED,
                )
            del starts[position], spans[position]
        starts.insert(position, start)
        spans.insert(position, (end, index, max(step, self.last_read.get(index, step))))


def _span(value: Any) -> tuple[int, int, int] | None:
    """Buffer, begin and end of a planned value."""
    if not isinstance(value, schema.Tensor) or value.allocation_info is None:
        return None
    begin = value.allocation_info.offset
    return value.allocation_info.memory_id, begin, begin + value.nbytes


def _is_constant(value: Any) -> bool:
    if not isinstance(value, schema.Tensor) or value.allocation_info is not None:
        return False
    return bool(value.data_buffer_idx or schema.is_external(value))
