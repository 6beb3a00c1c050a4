"""The search for an operator that a compiler fails at: parts of what it failed at are planned and compiled anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from delegatekit.compiling import Task
from delegatekit.lowering import ChosenBackend, graphs_of, partition_program
from delegatekit.partition import Partition
from delegatekit.pipeline import PlannedProgram
from delegatekit_api import Call, DelegateKitError
from delegatekit_toolkit.macs import macs

from .taken import Identity, Skipping, TakenOut, identity, place
from .watching import Failure, Watching

#: Plans the program once more, with this selector for what the backend of the failure must not take.
Planner = Callable[[Skipping], PlannedProgram]


@dataclass(frozen=True)
class Search:
    """The search in the operators of one failure."""

    failure: Failure
    plan: Planner
    compiling: Watching

    def found(self) -> tuple[Node, TakenOut]:
        """The operator to take out: the named one, else one that the compiler fails at. Raises OutOfTriesError."""
        operators = self.failure.operators
        named = named_operator(self.failure)
        if named is not None and self._is_right(named, operators):
            return named, self._taken(named, named=True)
        first, last = self._narrowed(operators)
        one, other = operators[first], operators[last]
        if one is other:
            return one, self._taken(one)
        # Either will do: the lighter one goes, and of two equal ones the later.
        one, other = (one, other) if self._weight(one) < self._weight(other) else (other, one)
        return one, self._taken(one, beside=place(other))

    def _is_right(self, named: Node, operators: Sequence[Node]) -> bool:
        """False if a compiler says the very same of the operators without the one that it named."""
        left = self._failure([node for node in operators if node is not named])
        return left is None or left.text != self.failure.text

    def _narrowed(self, operators: Sequence[Node]) -> tuple[int, int]:
        """The first and the last of neighbors that fail, of which neither may be missing, in order of the program."""
        # The fewest from the beginning that fail end with one that is needed for it, and so from that end.
        last = _least(len(operators), lambda count: self._fails(operators[:count])) - 1
        length = _least(last + 1, lambda count: self._fails(operators[last + 1 - count : last + 1]))
        return last + 1 - length, last

    def _fails(self, part: Sequence[Node]) -> bool:
        return self._failure(part) is not None

    def _failure(self, part: Sequence[Node]) -> Failure | None:
        """The failure of the backend at these operators alone; None if it compiles them."""
        backend = self.failure.task.backend.name
        kept = {identity(node) for node in part}
        others = [known for node in self.failure.operators if (known := identity(node)) not in kept]
        planned = self.plan(Skipping(others, "left out for a try"))
        tasks = _tasks(planned, planned.backends[backend])
        failures = (self.compiling.error_of(task) for task in tasks if kept & _identities(task))
        return next((failure for failure in failures if failure is not None), None)

    def _weight(self, node: Node) -> int:
        for program in self.failure.task.programs:
            if node.graph is program.view.graph:
                return macs(Call(node, program.view))
        return 0

    def _taken(self, node: Node, **more: Any) -> TakenOut:
        task = self.failure.task
        method = next(program.method for program in task.programs if node.graph is program.view.graph)
        return TakenOut(
            backend=task.backend.name,
            method=method,
            operator=place(node),
            error=self.failure.text,
            **{"named": False, **more},
        )


def named_operator(failure: Failure) -> Node | None:
    """The one operator that the compiler's error names: where it says that it is, else in what it says."""
    by_name: dict[str, list[Node]] = {}
    for node in failure.operators:
        by_name.setdefault(node.name, []).append(node)
    said = failure.error.where if isinstance(failure.error, DelegateKitError) else None
    for text in filter(None, (said, failure.whole)):
        words = set(re.findall(r"[\w.]+", text))
        found = [node for name in by_name.keys() & words for node in by_name[name]]
        if len(found) == 1:
            return found[0]
    return None


def _least(most: int, fails: Callable[[int], bool]) -> int:
    """The least count from 1 for which something fails, which it does for `most`, by halves."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return high


def _tasks(planned: PlannedProgram, chosen: ChosenBackend) -> list[Task]:
    """What the backend's compiler gets of a planned program."""
    programs = list(_programs(planned.methods, chosen.backend.name))
    groups = [programs] if chosen.compiles_together and programs else [[program] for program in programs]
    return [
        Task(chosen.backend, chosen.options, group, [f"partition {item.index} of {item.method}" for item in group])
        for group in groups
    ]


def _programs(methods: Mapping[str, Any], backend: str) -> Iterator[Any]:
    for name, method in methods.items():
        steps = (
            (edge, step)
            for edge, plan in graphs_of(method.edge, method.plan)
            for step in plan.steps
            if isinstance(step, Partition) and step.backend == backend
        )
        for index, (edge, step) in enumerate(steps):
            yield partition_program(edge, step, index, name)


def _identities(task: Task) -> set[Identity]:
    return {identity(node) for program in task.programs for node in program.view.graph.nodes}
