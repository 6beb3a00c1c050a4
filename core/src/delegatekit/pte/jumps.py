"""The successors of a method's instructions, and loops among them that cannot end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from . import schema
from .dataflow import calls


def successors(plan: schema.ExecutionPlan) -> list[tuple[int, ...]]:
    """The possible successors of each instruction; the number after the last stands for the end."""
    tables: list[Any] = [value.val for value in plan.values or ()]
    replaced = {(call.args or [-1])[-1] for call in calls(plan) if isinstance(call, schema.KernelCall)}
    replaced |= {call.move_to for call in calls(plan) if isinstance(call, schema.MoveCall)}
    found: list[tuple[int, ...]] = []
    for chain in plan.chains or ():
        start = len(found)
        for instruction in chain.instructions or ():
            call, after = instruction.instr_args, len(found) + 1
            if not isinstance(call, schema.JumpFalseCall):
                found.append((after,))
                continue
            condition = tables[call.cond_value_index]
            target = start + call.destination_instruction
            known = isinstance(condition, schema.Bool) and call.cond_value_index not in replaced
            if known:
                found.append((after,) if condition.bool_val else (target,))
            else:
                found.append((after, target))
    return found


def find_endless(plan: schema.ExecutionPlan) -> int | None:
    """The first instruction that leads into an endless loop, or None. The plan's indices must have been checked.

    Either the end of the method is unreachable from it, or the loop consists of jumps alone, which change nothing that
    they depend on. A loop that computes its condition may still be endless: only a limit stops that.
    """
    found = calls(plan)
    jumps = {step for step, call in enumerate(found) if isinstance(call, schema.JumpFalseCall)}
    if not jumps:
        return None
    ways = successors(plan)
    back: list[list[int]] = [[] for _ in range(len(ways) + 1)]
    for step, targets in enumerate(ways):
        for target in targets:
            back[target].append(step)
    reached = _reachable([*ways, ()], 0)
    lost = reached - _reachable(back, len(ways))
    changing_nothing = {step for step in reached if step in jumps or _is_free(found, step)}
    return min(lost | _looping(ways, back, changing_nothing), default=None)


def _is_free(found: Sequence[Any], step: int) -> bool:
    return step < len(found) and isinstance(found[step], schema.FreeCall)


def _reachable(ways: Sequence[Iterable[int]], start: int) -> set[int]:
    reached, open_steps = {start}, [start]
    while open_steps:
        for target in ways[open_steps.pop()]:
            if target not in reached:
                reached.add(target)
                open_steps.append(target)
    return reached


def _looping(ways: Sequence[Iterable[int]], back: Sequence[Iterable[int]], steps: set[int]) -> set[int]:
    """The steps that remain when those without successors among the others are removed repeatedly."""
    left = {step: sum(target in steps for target in set(ways[step])) for step in steps}
    ended = [step for step, count in left.items() if not count]
    while ended:
        step = ended.pop()
        del left[step]
        for before in set(back[step]):
            if before in left:
                left[before] -= 1
                if not left[before]:
                    ended.append(before)
    return set(left)
