"""A partitioner for tests of partitioning, and the invariants of every plan."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from torch.fx import Node

from delegatekit.edge import EdgeMethod
from delegatekit.partition import Partition, PartitionPlan
from delegatekit_api import Call, ProgramView, Verdict


class Rule:
    """A partitioner that takes the nodes that a function picks."""

    def __init__(self, takes: Callable[[Node], bool], passenger: Callable[[Node], bool] = lambda node: False) -> None:
        self.takes, self.passenger = takes, passenger
        self.proposal: list[list[Node]] | None = None

    def keep_operators(self) -> Collection[str]:
        return ()

    def check(self, call: Call) -> Verdict:
        node = call.node
        if not self.takes(node):
            return Verdict.no("not picked")
        return Verdict.yes(passenger=self.passenger(node))

    def propose(self, program: ProgramView) -> Any:
        return self.proposal


def check_plan(method: EdgeMethod, plan: PartitionPlan) -> None:
    """Every node runs once and after its inputs; a partition's inputs are all ready before it starts."""
    ready = set(method.inputs) | set(method.constants)
    for step in plan.steps:
        inputs = step.inputs if isinstance(step, Partition) else step.all_input_nodes
        assert set(inputs) <= ready
        produced = step.nodes if isinstance(step, Partition) else (step,)
        assert not ready & set(produced)
        ready |= set(produced)
    assert ready == {node for node in method.graph.nodes if node.op != "output"}
