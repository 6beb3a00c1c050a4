"""Measures lowered programs where their files will run, in ExecuTorch's runtime; otherwise on the Python engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median
from typing import Any, Final, Protocol

from torch.utils._pytree import tree_leaves

from delegatekit.engine import load
from delegatekit.pipeline import LoweredProgram
from delegatekit_toolkit.scratch import scratch

from ..profile import instruction_times
from .rounds import times_in_rounds
from .stock import Inputs, RefusedError, StockRuntime

#: Programs that take up to this many times as long as the quickest are timed in rounds with it; the others can't win.
_CLOSE: Final = 2.0
#: Seconds of rounds on the engine, and how many times as many rounds a verification has.
_ROUNDS: Final = 20.0
_MORE: Final = 3
#: Seconds after which no further call of a file alone begins: at most and at least, and times the quickest so far.
_ALONE: Final = 2.0
_SHORT: Final = 0.2
_ENOUGH: Final = 30.0


@dataclass(frozen=True)
class Timed:
    """Seconds of something, one figure for each of its parts or calls."""

    seconds: tuple[float, ...]
    #: The reason why they are an estimate, or not even that (no seconds); empty if the runtime of the file took them.
    estimate: str = ""
    #: True if the calls of several programs followed each other, round by round: their figures may be compared.
    rounds: bool = False


class Measurer(Protocol):
    """Measures lowered programs on the example inputs."""

    def instructions(self, program: LoweredProgram, method: str) -> Timed:
        """Seconds of each instruction of a method."""

    def wholes(self, programs: Sequence[LoweredProgram]) -> Sequence[Timed]:
        """Seconds of calls of each program, all methods together; those that are close are timed in rounds."""

    def again(self, programs: Sequence[LoweredProgram]) -> Sequence[Timed]:
        """As `wholes`, of programs that were among those in rounds, all in rounds and from scratch."""


class EngineMeasurer:
    """The Python engine: wall or CPU seconds."""

    def __init__(self, inputs: Inputs, *, runs: int, warm_up: int, cpu: bool, reason: str = "") -> None:
        """`reason` is why figures are estimates."""
        self._inputs = inputs
        self._runs = runs
        self._warm_up = warm_up
        self._cpu = cpu
        self._reason = reason

    def instructions(self, program: LoweredProgram, method: str) -> Timed:
        """Medians of several calls."""
        with load(program.buffer) as loaded:
            flat = tree_leaves(self._inputs[method])
            found = instruction_times(loaded[method], flat, runs=self._runs, warm_up=self._warm_up)
        taken = (times.median_cpu or 0.0 if self._cpu else times.median for times in found)
        return Timed(tuple(taken), self._reason)

    def wholes(self, programs: Sequence[LoweredProgram]) -> list[Timed]:
        """All in rounds."""
        with ExitStack() as stack:
            loaded = [stack.enter_context(load(program.buffer)) for program in programs]
            calls = [partial(_call, program, self._inputs) for program in loaded]
            for call in calls:
                for _ in range(self._warm_up):
                    call()
            found = times_in_rounds(calls, cpu=self._cpu, runs=self._runs, seconds=_ROUNDS)
        return [Timed(tuple(seconds), self._reason, rounds=True) for seconds in found]

    def again(self, programs: Sequence[LoweredProgram]) -> list[Timed]:
        """As `wholes`."""
        return self.wholes(programs)


def _call(program: Any, inputs: Inputs) -> None:
    for name, given in inputs.items():
        program[name].run(tree_leaves(given))


class RuntimeMeasurer:
    """ExecuTorch's runtime. What it does not run has no figures as a whole, and estimates of the engine in pieces."""

    def __init__(self, runtime: StockRuntime, engine: Callable[[str], EngineMeasurer]) -> None:
        """`engine` makes the measurer of what the runtime refuses, for a reason."""
        self._runtime = runtime
        self._engine = engine

    def instructions(self, program: LoweredProgram, method: str) -> Timed:
        """Seconds from ExecuTorch's trace."""
        try:
            return Timed(tuple(self._runtime.instructions(program, method)))
        except RefusedError as error:
            return self._engine(str(error)).instructions(program, method)

    def wholes(self, programs: Sequence[LoweredProgram]) -> list[Timed]:
        """Each alone first: in rounds only those that are not far behind the quickest."""
        found: list[Timed] = []
        least = inf
        for program in reversed(programs):  # the runtime alone, which is slow, comes last
            found.insert(0, self._alone(program, min(_ALONE, max(_SHORT, _ENOUGH * least))))
            least = min((least, *found[0].seconds))
        close = [index for index, item in enumerate(found) if item.seconds and min(item.seconds) <= _CLOSE * least]
        for index, item in zip(close, self._rounds([programs[index] for index in close]), strict=True):
            found[index] = item if item.seconds else found[index]
        return found

    def again(self, programs: Sequence[LoweredProgram]) -> list[Timed]:
        """In a new process."""
        self._runtime.renew()
        return self._rounds(programs, _MORE)

    def _alone(self, program: LoweredProgram, seconds: float) -> Timed:
        try:
            return Timed(tuple(self._runtime.alone(program, seconds)))
        except RefusedError as error:
            return Timed((), str(error))

    def _rounds(self, programs: Sequence[LoweredProgram], more: int = 1) -> list[Timed]:
        try:
            return [Timed(tuple(seconds), rounds=True) for seconds in self._runtime.rounds(programs, more)]
        except RefusedError as error:
            return [Timed((), str(error)) for _ in programs]


def typical(timed: Timed) -> float:
    """The median of calls in rounds; of calls that others did not follow, the least."""
    return median(timed.seconds) if timed.rounds else min(timed.seconds)


@contextmanager
def measurer_of(
    inputs: Inputs, delegate_ids: Mapping[str, str], *, runs: int, warm_up: int, cpu: bool
) -> Iterator[tuple[Measurer, Mapping[str, str]]]:
    """ExecuTorch's runtime where it is installed, otherwise the engine; and the facts of it that times depend on.

    `delegate_ids` are those of the backends, by their names.
    """
    engine = partial(EngineMeasurer, inputs, runs=runs, warm_up=warm_up, cpu=cpu)
    with scratch() as folder:
        runtime = StockRuntime(folder, inputs, delegate_ids, runs=runs, warm_up=warm_up, cpu=cpu)
        try:
            if runtime.missing:
                yield engine(reason=runtime.missing), {"runtime": "DelegateKit's engine"}
            else:
                yield RuntimeMeasurer(runtime, lambda reason: engine(reason=reason)), runtime.facts
        finally:
            runtime.renew()
