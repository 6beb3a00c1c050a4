"""Asks the backends to accept the plans of methods, before anything is compiled."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping

from torch.fx import Node

from delegatekit_api import MethodPlan, Partitioner, PlanPartitioner, UnsupportedError

from ..edge import EdgeMethod
from ..edge.precompiled import is_precompiled
from ..edge.sizes import is_size_node
from ..partition import Partition, PartitionedMethod, PartitionPlan
from ..partition.ask import blaming_partitioner
from ..plugins import check_answer


def refusals(method: PartitionedMethod, partitioners: Mapping[str, Partitioner]) -> Iterator[UnsupportedError]:
    """The refusals of plans by backends: an error each, for `lower` to raise.

    Raises PluginError for a partitioner that raises, or returns anything but a reason.
    """
    for backend, partitioner in partitioners.items():
        if not isinstance(partitioner, PlanPartitioner):
            continue
        with blaming_partitioner(backend, "looking at the plan"):
            reason = partitioner.plan_reason(plan_of(method, backend))
        check_answer(reason, str | None, "what plan_reason returned", f"backend {backend}")
        if reason is not None:
            hint = "`explain` shows what would run each operator, and why"
            yield UnsupportedError(reason, where=f"method {method.edge.name} for backend {backend}", hint=hint)


def plan_of(method: PartitionedMethod, backend: str) -> MethodPlan:
    """A method's plan as a backend sees it."""
    own, outside = 0, dict[Node, str]()
    for graph, plan in graphs_of(method.edge, method.plan):
        for step in plan.steps:
            if isinstance(step, Partition) and step.backend == backend:
                own += 1
                continue
            nodes = step.nodes if isinstance(step, Partition) else (step,)
            outside.update({node: _why_outside(node, graph, plan, backend) for node in nodes if is_work(node)})
    return MethodPlan(method.edge.name, own, outside)


def graphs_of(edge: EdgeMethod, plan: PartitionPlan) -> Iterator[tuple[EdgeMethod, PartitionPlan]]:
    """The graph of a method, and those of its control flow, each with its plan."""
    yield edge, plan
    for call, regions in edge.regions.items():
        for region, inner in zip(regions, plan.regions[call], strict=True):
            yield from graphs_of(region, inner)


def is_work(node: Node) -> bool:
    """True if a node computes something: picking one of several results does not, nor do sizes."""
    return node.op == "call_function" and node.target is not operator.getitem and not is_size_node(node)


def _why_outside(node: Node, graph: EdgeMethod, plan: PartitionPlan, backend: str) -> str:
    if node in graph.regions:
        return "control flow is the runtime's"
    if is_precompiled(node):
        return "it is a delegate already"
    taker = plan.taker.get(node)
    if taker not in (None, backend):
        return f"backend {taker} takes it"
    answer = plan.verdicts[node].get(backend)
    return answer.reason if answer is not None and answer.reason else "taken only together with other operators"
