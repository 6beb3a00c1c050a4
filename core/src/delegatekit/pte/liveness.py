"""Finds planned values that are overwritten while they are live, in methods with jumps.

Liveness over the control flow graph. It may miss faults: values after a move, and reads through
views that the writer omitted, are not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import schema
from .dataflow import Effect
from .jumps import successors

#: Limit of pairs of instructions and values: larger methods are not checked.
_LARGEST = 1 << 23
#: Limit of the passes over the instructions: jumps nest less deeply.
_PASSES = 64


@dataclass(frozen=True)
class Overwritten:
    """At an instruction (-1: the inputs are set), `value` is written over `other`, which is live."""

    step: int
    value: int
    other: int


def find_overwritten(
    plan: schema.ExecutionPlan, found: Sequence[Effect], takes_over: Callable[[int, int, Effect], bool]
) -> Overwritten | None:
    """The first such write; None if there is none. `found` are the method's effects.

    `takes_over(value, step, effect)` decides whether an instruction may write a value over one that it reads.
    """
    if len(found) * len(plan.values or ()) > _LARGEST:
        return None
    liveness = _Liveness(plan, found)
    return liveness.search(takes_over) if liveness.solve() else None


class _Liveness:
    """The liveness analysis. Sets of values are the bits of integers."""

    def __init__(self, plan: schema.ExecutionPlan, found: Sequence[Effect]) -> None:
        self.plan = plan
        self.tables: list[Any] = [value.val for value in plan.values or ()]
        self.found = found
        self.next = successors(plan)
        self.reads = [_bits(effect.reads) for effect in found]
        self.writes = [_bits(effect.writes) for effect in found]
        self.updates = [_bits(effect.updates) for effect in found]
        #: Buffers with an initial value keep their content from call to call.
        self.kept = _bits(i for i, table in enumerate(self.tables) if _is_planned(table) and table.data_buffer_idx)
        self.inputs = _bits(plan.inputs or ())
        count = len(self.next)
        #: For each instruction, and the end: the values that may be read from here on, before they are rewritten.
        self.live = [0] * count + [self.reads[-1] | self.kept]
        #: The values that may have been written, in this call, before this point.
        self.defined = [self.inputs | self.kept] + [0] * count

    def solve(self) -> bool:
        """Iterate to the fixed point; returns whether it was reached."""
        return any(not self.pass_backwards() for _ in range(_PASSES)) and any(
            not self.pass_forwards() for _ in range(_PASSES)
        )

    def pass_backwards(self) -> bool:
        """Returns whether something changed."""
        changed = False
        for step in reversed(range(len(self.next))):
            before = self.after(step) & ~self.writes[step] | self.reads[step]
            changed |= before != self.live[step]
            self.live[step] = before
        return changed

    def pass_forwards(self) -> bool:
        """Returns whether something changed."""
        changed = False
        for step, following in enumerate(self.next):
            after = self.defined[step] | self.writes[step] | self.updates[step]
            for follower in following:
                changed |= bool(after & ~self.defined[follower])
                self.defined[follower] |= after
        return changed

    def after(self, step: int) -> int:
        """The live values after an instruction."""
        found = 0
        for successor in self.next[step]:
            found |= self.live[successor]
        return found

    def search(self, takes_over: Callable[[int, int, Effect], bool]) -> Overwritten | None:
        """The first write over a live value."""
        needed = (self.live[0] | self.kept) & (self.inputs | self.kept)
        for index in self.plan.inputs or ():
            other = self.met(index, needed)
            if other is not None:
                return Overwritten(-1, index, other)
        for step in range(len(self.next)):
            effect = self.found[step]
            for index in effect.writes:
                needed = self.after(step)
                if not takes_over(index, step, effect):
                    needed |= self.reads[step]
                other = self.met(index, needed & self.defined[step])
                if other is not None:
                    return Overwritten(step, index, other)
        return None

    def met(self, index: int, needed: int) -> int | None:
        """A value among `needed` that overlaps this one's memory."""
        mine = self.tables[index]
        if not _is_planned(mine) or not mine.nbytes:
            return None
        place = mine.allocation_info
        needed &= ~(1 << index)
        while needed:
            other = needed.bit_length() - 1
            needed ^= 1 << other
            theirs = self.tables[other]
            if not _is_planned(theirs) or theirs.allocation_info.memory_id != place.memory_id:
                continue
            begin = theirs.allocation_info.offset
            if begin < place.offset + mine.nbytes and place.offset < begin + theirs.nbytes:
                return other
        return None


def _is_planned(table: Any) -> bool:
    return isinstance(table, schema.Tensor) and table.allocation_info is not None


def _bits(indices: Any) -> int:
    found = 0
    for index in indices:
        found |= 1 << index
    return found
