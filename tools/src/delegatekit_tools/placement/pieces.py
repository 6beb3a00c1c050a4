"""Measures the pieces of a program: each unit on each of its runners, and the cost of borders between units."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

from torch.fx import Node

from delegatekit.edge import EdgeMethod
from delegatekit.partition import PartitionFunction, Placement
from delegatekit.pipeline import LoweredProgram
from delegatekit_api import ProgramView
from delegatekit_api.nodes import operator_name

from .clock import Measurer
from .labeling import Problem, choose
from .units import Unit, signature, units_of


class Lowerer(Protocol):
    """Lowers the program that is tuned."""

    def __call__(
        self,
        backends: Sequence[str],
        *,
        partition: PartitionFunction | Placement | None = None,
        keep: Collection[str] | None = None,
    ) -> LoweredProgram:
        """As `delegatekit.lower` with these arguments."""


@dataclass
class _Method:
    """The units of one method, and for each the seconds by runner ("" is the runtime)."""

    units: list[Unit]
    seconds: list[dict[str, float]]

    @property
    def problem(self) -> list[dict[str, float]]:
        """The seconds; units that could not be measured are left to the runtime."""
        return [costs or {"": 0.0} for costs in self.seconds]

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs of units of which the second reads a result of the first."""
        home = {node: index for index, unit in enumerate(self.units) for node in unit.nodes}
        pairs = {
            (home[source], index): None
            for index, unit in enumerate(self.units)
            for node in unit.nodes
            for source in node.all_input_nodes
            if source in home and home[source] != index
        }
        return list(pairs)


class Pieces:
    """The pieces of a program in one form: `keep` has the operators kept whole, None all that a backend asks for."""

    def __init__(
        self, lower: Lowerer, backends: Sequence[str], keep: tuple[str, ...] | None, measurer: Measurer
    ) -> None:
        self._lower = lower
        self._backends = list(backends)
        self.keep = keep
        self._measurer = measurer
        self.methods: dict[str, _Method] = {}
        #: Backend -> seconds that two neighbors save if both are there.
        self.borders: dict[str, float] = {}
        #: Runner -> the reason why its times are estimates.
        self.estimates: dict[str, str] = {}
        #: Operator with its shapes (`signature`) -> seconds of the kernels in the runtime of the file.
        self.kernels: dict[str, float] = {}

    def find_units(self) -> None:
        """The units of each method; none of them has times yet."""
        self._alone, self._on_runtime = self._apart("")
        self.methods = {
            name: _Method(units, [{} for _ in units])
            for name, method in self._on_runtime.methods.items()
            for units in [self._alone.units(method.edge)]
        }

    @property
    def takers(self) -> set[str]:
        """The backends that take a unit; to lower for others would measure nothing."""
        return {name for method in self.methods.values() for unit in method.units for name in unit.takers}

    def measure_units(self, runner: str) -> None:
        """The time of each unit on a backend, in a delegate of its own; or on the runtime's kernels."""
        apart, program = self._apart(runner) if runner else (self._alone, self._on_runtime)
        for name, method in program.methods.items():
            units = apart.units(method.edge)
            known = self.methods[name]
            timed = self._measurer.instructions(program, name)
            of_node = _seconds_of_nodes(program, name, timed.seconds)
            if timed.estimate:
                self.estimates[runner] = timed.estimate
            else:
                fallback = program.methods[name].plan.fallback
                self.kernels |= {signature(node): of_node[node.name] for node in fallback if node.name in of_node}
            mine = {_names(unit): unit for unit in units}
            for unit, costs in zip(known.units, known.seconds, strict=True):
                same = mine.get(_names(unit))
                if same is not None and apart.runner(same) == runner:
                    costs[runner] = sum(of_node.get(node.name, 0.0) for node in same.nodes)

    def _apart(self, runner: str) -> tuple[_Apart, LoweredProgram]:
        apart = _Apart(self._backends, runner)
        return apart, self._lower(self._backends, partition=apart, keep=self.keep)

    def measure_borders(self, backend: str) -> None:
        """The savings of neighbors on a backend: its units, each alone, against the same ones joined."""
        owners = {name: [_prefer(backend, costs) for costs in method.problem] for name, method in self.methods.items()}
        program = self._lower(self._backends, partition=self._placement(owners), keep=self.keep)
        saved, edges = 0.0, 0
        for name, method in self.methods.items():
            callers = _callers(program, name)
            taken = zip(self._measurer.instructions(program, name).seconds, callers, strict=True)
            together = sum(seconds for seconds, who in taken if who is not None and who.partition.backend == backend)
            saved += sum(costs.get(backend, 0.0) for costs in method.seconds) - together
            edges += sum(owners[name][first] == owners[name][second] == backend for first, second in method.edges)
        self.borders[backend] = max(0.0, saved / edges) if edges else 0.0

    def mixture(self, scale: float) -> Placement:
        """The cheapest placement if borders cost this many times their measured cost."""
        border = {name: scale * seconds for name, seconds in self.borders.items()}
        problems = {name: Problem(method.problem, method.edges, border) for name, method in self.methods.items()}
        return self._placement({name: choose(problem) for name, problem in problems.items()})

    def by_source(self) -> dict[str, tuple[float, bool]]:
        """Exported operator -> seconds of its parts, each on its fastest runner; and whether it stayed whole."""
        found: dict[str, tuple[float, bool]] = {}
        for method in self.methods.values():
            for unit, costs in zip(method.units, method.seconds, strict=True):
                sources = {str(node.meta.get("source_operator", "")) for node in unit.nodes}
                names = {operator_name(node) for node in unit.nodes}
                for source in sources:
                    seconds, whole = found.get(source, (0.0, False))
                    seconds += min(costs.values(), default=math.inf) / len(sources)
                    found[source] = seconds, whole or source in names
        return found

    @property
    def form(self) -> tuple[tuple[str, str], ...]:
        """The operators: two choices of `keep` may give the same."""
        return tuple(
            (name, "; ".join(f"{node.name} {node.target}" for node in unit.nodes))
            for name, method in self.methods.items()
            for unit in method.units
        )

    def _placement(self, owners: Mapping[str, Sequence[str]]) -> Placement:
        return {
            name: {
                node.name: owner
                for unit, owner in zip(method.units, owners[name], strict=True)
                for node in unit.nodes
                if node.target is not operator.getitem
            }
            for name, method in self.methods.items()
        }


@dataclass
class _Apart:
    """A partition function that puts each unit of a backend into a delegate of its own, and remembers the units."""

    backends: Sequence[str]
    wanted: str
    _found: dict[int, list[Unit]] = field(default_factory=dict)

    def __call__(self, program: ProgramView, ask: Any) -> Iterable[tuple[str, Sequence[Node]]]:
        units = self._found[id(program.graph)] = units_of(program, self.backends, ask)
        return [(name, unit.nodes) for unit in units if (name := self.runner(unit))]

    def runner(self, unit: Unit) -> str:
        """The runner of a unit: the wanted one if it can, or else the runtime, or else the first backend that can."""
        runners = unit.runners
        return self.wanted if self.wanted in runners else "" if "" in runners else runners[0]

    def units(self, edge: EdgeMethod) -> list[Unit]:
        """The units of a graph for which this was called."""
        return self._found[id(edge.graph)]


def _names(unit: Unit) -> frozenset[str]:
    return frozenset(node.name for node in unit.nodes)


def _prefer(backend: str, costs: Mapping[str, float]) -> str:
    return backend if backend in costs else "" if "" in costs else min(costs)


def estimated(program: LoweredProgram, measurer: Measurer, kernels: Mapping[str, float]) -> float:
    """Seconds of a call of a program that the runtime of the file does not run here: delegates by what stands in for
    it, operators by the times of their kernels in that runtime, where they are known."""
    total = 0.0
    for name, method in program.methods.items():
        times = measurer.instructions(program, name).seconds
        called = sum(taken for taken, who in zip(times, _callers(program, name), strict=True) if who is not None)
        rest = _seconds_of_nodes(program, name, times)
        total += called + sum(kernels.get(signature(node), rest.get(node.name, 0.0)) for node in method.plan.fallback)
    return total


def _callers(program: LoweredProgram, method: str) -> list[Any]:
    """For each instruction the delegate that it calls; None for others."""
    delegates = program.methods[method].delegates
    calls = [item["calls"] for item in program.debug_map()[method]["instructions"]]
    return [delegates[int(call.rpartition(" ")[2])] if call.startswith("delegate ") else None for call in calls]


def _seconds_of_nodes(program: LoweredProgram, method: str, times: Sequence[float]) -> dict[str, float]:
    """The time of each operator; if one instruction computes several, each gets an equal part.

    Instructions of the runtime know the exported operator that they come from, and their kernel.
    """
    of_handle: dict[int, list[Node]] = {}
    begun: set[Node] = set()
    for node in program.methods[method].plan.fallback:
        of_handle.setdefault(node.meta["debug_handle"], []).append(node)
    found: dict[str, float] = {}
    instructions = program.debug_map()[method]["instructions"]
    for taken, delegate, item in zip(times, _callers(program, method), instructions, strict=True):
        if delegate is not None:
            nodes = list(delegate.partition.nodes)
        else:
            nodes = [node for handle in item["handles"] for node in of_handle.get(handle, ())]
            kernel = item["calls"].partition("::")[2].partition(".")[0]
            of_kernel = [node for node in nodes if operator_name(node).split(".")[1:2] == [kernel]]
            # Instructions are in the order of the operators: the next of its kind matches.
            nodes = [node for node in of_kernel if node not in begun][:1] or of_kernel[-1:] or nodes
            begun.update(nodes)
        for node in nodes:
            found[node.name] = found.get(node.name, 0.0) + taken / len(nodes)
    return found


def median_by_signature(pieces: Iterable[Pieces]) -> dict[str, tuple[str, int, dict[str, float]]]:
    """Key of a unit -> its signature, count, and median seconds by runner."""
    found: dict[str, tuple[str, list[dict[str, float]]]] = {}
    for one in pieces:
        for method in one.methods.values():
            for unit, costs in zip(method.units, method.seconds, strict=True):
                found.setdefault(unit.key, (unit.signature, []))[1].append(costs)
    return {
        key: (
            signature,
            len(all_costs),
            {
                runner: median(costs[runner] for costs in all_costs if runner in costs)
                for runner in sorted({runner for costs in all_costs for runner in costs})
            },
        )
        for key, (signature, all_costs) in found.items()
    }
