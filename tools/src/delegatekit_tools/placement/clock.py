"""Measures lowered programs on the Python engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch.utils._pytree import tree_leaves

from delegatekit.engine import load
from delegatekit.pipeline import LoweredProgram

from ..profile import Times, call_times, instruction_times


class EngineMeasurer:
    """Medians of several calls, in wall or CPU seconds, on the example inputs."""

    def __init__(
        self, inputs: Mapping[str, tuple[tuple[Any, ...], dict[str, Any]]], *, runs: int, warm_up: int, cpu: bool
    ) -> None:
        self._inputs = inputs
        self._runs = runs
        self._warm_up = warm_up
        self._cpu = cpu

    def instructions(self, program: LoweredProgram, method: str) -> list[float]:
        """Seconds of each instruction of a method."""
        with load(program.buffer) as loaded:
            flat = tree_leaves(self._inputs[method])
            found = instruction_times(loaded[method], flat, runs=self._runs, warm_up=self._warm_up)
        return list(map(self._seconds, found))

    def wholes(self, programs: Sequence[LoweredProgram]) -> list[float]:
        """Seconds of a call of each program, all methods together; the programs are called in turn."""
        loaded = [load(program.buffer) for program in programs]
        try:
            calls = [
                partial(program[name].run, tree_leaves(given))
                for program in loaded
                for name, given in self._inputs.items()
            ]
            found = call_times(calls, runs=self._runs, warm_up=self._warm_up, seconds=float("inf"))
        finally:
            for program in loaded:
                program.close()
        count = len(self._inputs)
        seconds = list(map(self._seconds, found))
        return [sum(seconds[start : start + count]) for start in range(0, len(seconds), count)]

    def _seconds(self, times: Times) -> float:
        return times.median_cpu or 0.0 if self._cpu else times.median
