"""Runs a method and measures it: whole calls, calls by instruction, and calls that profile delegates.

Each is measured in calls of its own: measuring the inside must not change the times outside. The first two
alternate, so that other load of the machine affects both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, process_time
from typing import Any

from delegatekit.engine import Method, Step
from delegatekit.pte import content_key
from delegatekit_api import DelegateKitError

from ..etrecord.reading import Record
from .inside import operator_profiles
from .measured import InstructionProfile, Times
from .origins import Origins
from .profile import Profile


def profile(
    method: Method,
    inputs: Sequence[Any],
    *,
    runs: int = 20,
    warm_up: int = 3,
    debug_map: Mapping[str, Any] | Record | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Profile:
    """The profile of a method, on these flat inputs.

    Args:
        method: a method of a loaded program; its buffers are put back to their initial values in the end.
        inputs: as `Method.run` takes them.
        runs: calls of each of the three kinds: whole, by instruction, by operator inside delegates.
        warm_up: calls before them, which are reported separately: the first ones prepare and allocate.
        debug_map: of the same file, as `LoweredProgram.debug_map()` gives it or `lower --debug-map` writes it, or an
            ETRecord (`delegatekit_tools.etrecord.read_etrecord`): with it, times are traced back to modules and source
            lines.
        progress: is told the calls that are done, and how many there will be.

    Raises DelegateKitError for a debug map of another file, and ExecutionError as calls do.
    """
    if runs < 1 or warm_up < 0:
        raise DelegateKitError(f"takes 1 run or more, and no negative warm-up; got {runs} and {warm_up}")
    names = method.instructions
    origins = Origins(debug_map, method.name, names, content_key(method.file))
    owners, estimates = method.owners, method.estimates
    first = [_whole(method, inputs) for _ in range(warm_up)]
    total, recorded, inside = [], [], []
    for number in range(runs):
        total.append(_whole(method, inputs))
        recorded.append(recorded_call(method, inputs, len(names)))
        progress(2 * number + 2, 3 * runs)
    for number in range(runs):
        inside.append(method.record_operators(inputs))
        progress(2 * runs + number + 1, 3 * runs)
    method.reset()
    instructions = []
    for position, name in enumerate(names):
        walls, cpus, starts = (tuple(call[which][position] for call in recorded) for which in range(3))
        operators = [call[position] for call in inside] if position in inside[0] else []
        instructions.append(
            InstructionProfile(
                position,
                name,
                Times(walls, cpus),
                starts,
                owners.get(position, ""),
                origins.of_instruction(position),
                operator_profiles(operators, position, origins),
                estimates.get(position),
            )
        )
    return Profile(method.name, _times(total), _times(first), tuple(instructions))


def instruction_times(method: Method, inputs: Sequence[Any], *, runs: int, warm_up: int) -> list[Times]:
    """The times of each instruction of a method on these flat inputs, after `warm_up` calls that are not measured."""
    for _ in range(warm_up):
        method.run(inputs)
    count = len(method.instructions)
    recorded = [recorded_call(method, inputs, count) for _ in range(runs)]
    method.reset()
    pairs = zip(*((zip(walls, cpus, strict=True)) for walls, cpus, _ in recorded), strict=True)
    return [_times(calls) for calls in pairs]


def call_times(calls: Sequence[Callable[[], object]], *, runs: int, warm_up: int, seconds: float) -> list[Times]:
    """The times of each of these calls, made in turn, so that other load of the machine affects all.

    It ends after `runs` rounds, or when `seconds` have passed and each was measured once.
    """
    begin = perf_counter()
    for call in calls:
        for number in range(warm_up):
            if number and perf_counter() - begin > seconds:
                break
            call()
    found: list[list[tuple[float, float]]] = [[] for _ in calls]
    for number in range(runs):
        if number and perf_counter() - begin > seconds:
            break
        for index, call in enumerate(calls):
            start, cpu = perf_counter(), process_time()
            call()
            found[index].append((perf_counter() - start, process_time() - cpu))
    return list(map(_times, found))


def _whole(method: Method, inputs: Sequence[Any]) -> tuple[float, float]:
    """Wall and CPU seconds of a call."""
    start, cpu = perf_counter(), process_time()
    method.run(inputs)
    return perf_counter() - start, process_time() - cpu


def _times(calls: Sequence[tuple[float, float]]) -> Times:
    return Times(tuple(wall for wall, _ in calls), tuple(cpu for _, cpu in calls))


def recorded_call(method: Method, inputs: Sequence[Any], count: int) -> tuple[list[float], list[float], list[float]]:
    """Wall seconds, CPU seconds and first starts of the `count` instructions; repeated runs are summed up."""
    walls, cpus, starts = [0.0] * count, [0.0] * count, [0.0] * count
    begin = perf_counter()

    def recorder(position: int, step: Step) -> Any:
        start, cpu = perf_counter(), process_time()
        target = step()
        end = perf_counter()
        cpus[position] += process_time() - cpu
        starts[position] = starts[position] or start - begin
        walls[position] += end - start
        return target

    method.record(inputs, recorder)
    return walls, cpus, starts
