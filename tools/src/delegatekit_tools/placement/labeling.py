"""Chooses the runner of each unit: the least sum of the units' times and the costs of borders between them.

Each unit costs its time measured alone. Two neighbors on one backend save the cost of a border there, since no
call ends between them and no tensor is copied. That is a labeling of the graph of units with a metric between labels:
moves that assign any set of units to one backend are found by a minimum cut (alpha expansion: Boykov, Veksler, Zabih,
2001). With two runners one such move reaches the optimum, with more the result is at most twice the optimum's cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: Costs are counted in whole picoseconds: sums do not depend on their order, and cuts are exact.
_SCALE: Final = 1e12
#: The two terminals of the cut.
_STAYS, _GOES = "stays", "goes"


@dataclass(frozen=True)
class Problem:
    """A labeling problem."""

    #: For each unit: runner -> seconds that the unit takes there, alone. "" is the runtime.
    seconds: Sequence[Mapping[str, float]]
    #: Pairs of units of which the second reads a result of the first.
    edges: Sequence[tuple[int, int]]
    #: Runner -> seconds of a border, which two neighbors save if both are there.
    border: Mapping[str, float]

    def cost(self, owners: Sequence[str]) -> float:
        """Seconds that the model expects if unit i is computed by `owners[i]`."""
        total = sum(costs[owner] for costs, owner in zip(self.seconds, owners, strict=True))
        return total - sum(self.border.get(owners[a], 0.0) for a, b in self.edges if owners[a] == owners[b])


def choose(problem: Problem) -> tuple[str, ...]:
    """The runner of each unit. Deterministic; equal costs are decided by the runners' names.

    >>> alone = [{"a": 3.0, "b": 5.0}, {"a": 3.0, "b": 2.0}, {"a": 3.0, "b": 5.0}]
    >>> choose(Problem(alone, [(0, 1), (1, 2)], {"a": 0.1, "b": 0.1}))
    ('a', 'b', 'a')
    >>> choose(Problem(alone, [(0, 1), (1, 2)], {"a": 2.0, "b": 2.0}))
    ('a', 'a', 'a')
    """
    runners = sorted({runner for costs in problem.seconds for runner in costs})
    best: tuple[str, ...] | None = None
    for start in runners:
        owners = [start if start in costs else _quickest(costs) for costs in problem.seconds]
        owners = _expanded(problem, owners, runners)
        if best is None or problem.cost(owners) < problem.cost(best):
            best = tuple(owners)
    return best or ()


def _quickest(costs: Mapping[str, float]) -> str:
    return min(costs, key=lambda name: (costs[name], name))


def _expanded(problem: Problem, owners: list[str], runners: Sequence[str]) -> list[str]:
    """The owners after all moves that reduce the cost."""
    cost = problem.cost(owners)
    while True:
        before = cost
        for runner in runners:
            moved = _move(problem, owners, runner)
            if problem.cost(moved) < cost * (1 - 1e-9):
                owners, cost = moved, problem.cost(moved)
        if cost == before:
            return owners


def _move(problem: Problem, owners: Sequence[str], runner: str) -> list[str]:
    """The best owners if each unit either stays where it is or moves to `runner`.

    Energies of pairs become terms of single units and one arc each (Kolmogorov and Zabih, 2004).
    """
    import networkx  # type: ignore[import-untyped]

    degrees = Counter(unit for edge in problem.edges for unit in edge)

    def work(unit: int, name: str) -> float:
        return problem.seconds[unit].get(name, 0.0) - degrees[unit] * problem.border.get(name, 0.0) / 2

    def between(one: str, other: str) -> float:
        return 0.0 if one == other else (problem.border.get(one, 0.0) + problem.border.get(other, 0.0)) / 2

    graph: Any = networkx.DiGraph()
    graph.add_nodes_from((_STAYS, _GOES, *range(len(owners))))
    extra = [work(unit, runner) - work(unit, owner) for unit, owner in enumerate(owners)]  # the cost of moving
    for first, second in problem.edges:
        neither = between(owners[first], owners[second])
        first_alone, second_alone = between(runner, owners[second]), between(owners[first], runner)
        extra[first] += first_alone - neither
        extra[second] -= first_alone
        _add(graph, first, second, first_alone + second_alone - neither)
    for unit, seconds in enumerate(extra):
        # An arc is paid where it leads from a unit that stays to one that moves.
        if runner not in problem.seconds[unit]:
            graph.add_edge(_STAYS, unit)  # no capacity attribute: infinite
        elif seconds > 0:
            _add(graph, _STAYS, unit, seconds)
        else:
            _add(graph, unit, _GOES, -seconds)
    _, (staying, _) = networkx.minimum_cut(graph, _STAYS, _GOES)
    return [owner if unit in staying else runner for unit, owner in enumerate(owners)]


def _add(graph: Any, source: object, target: object, seconds: float) -> None:
    capacity = round(seconds * _SCALE)
    if capacity > 0:
        known = graph.get_edge_data(source, target, {"capacity": 0})["capacity"]
        graph.add_edge(source, target, capacity=known + capacity)
