"""Explains a partition plan: for every node who runs it, and why the backends that do not take it leave it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from delegatekit_api import operator_name, source_line

from ..edge import EdgeMethod
from ..edge.precompiled import is_precompiled, precompiled
from ..edge.sizes import is_size_node
from ..fallback import kernel_limit, kernel_of
from ..partition import PartitionedMethod, PartitionPlan

#: The runtime's own operators, among the reasons.
RUNTIME = "runtime"
#: Why a node that a backend takes is in no delegate.
ONLY_TOGETHER = "takes it only together with operators that compute something"


@dataclass(frozen=True)
class ExplainRow:
    """One node of the edge program."""

    method: str
    node: str
    operator: str
    #: Path of the module that the node comes from ("layers.0.mlp"), as far as the export recorded it.
    module: str
    #: The user's source line, "model.py:12: `x = a + b`".
    source: str
    #: The backend that runs the node; None for the runtime's own operators, or nobody.
    backend: str | None
    #: The runtime's kernel if no backend runs the node ("aten::add.out"); None if there is none either.
    kernel: str | None
    #: Backend -> why it leaves the node; `RUNTIME` -> why the runtime's own operators cannot run it, either.
    reasons: Mapping[str, str]

    @property
    def runnable(self) -> bool:
        """Whether anybody can run the node."""
        return self.backend is not None or self.kernel is not None


@dataclass(frozen=True)
class Explanation:
    """All nodes of all methods, in graph order."""

    rows: tuple[ExplainRow, ...]
    backends: tuple[str, ...]

    @property
    def unsupported(self) -> tuple[ExplainRow, ...]:
        """The nodes that nobody can run: lowering would refuse the program because of them."""
        return tuple(row for row in self.rows if not row.runnable)

    def __str__(self) -> str:
        lines = []
        for row in self.rows:
            who = row.backend or (f"runtime ({row.kernel})" if row.kernel else "NOBODY")
            place = ", ".join(part for part in (row.module, row.source) if part)
            lines.append(f"{row.method}: {row.operator} ({row.node}): {who}" + (f"   [{place}]" if place else ""))
            if row.backend is None:
                lines.extend(f"    {backend}: {reason}" for backend, reason in row.reasons.items())
        return "\n".join(lines)


def explain_plan(methods: Mapping[str, PartitionedMethod], backends: tuple[str, ...]) -> Explanation:
    """Make the explanation of partition plans that asked every backend about every node."""
    rows: list[ExplainRow] = []
    for name, method in methods.items():
        for edge, plan in _graphs(method.edge, method.plan):
            rows.extend(_rows(name, edge, plan))
    return Explanation(tuple(rows), backends)


def _graphs(edge: EdgeMethod, plan: PartitionPlan) -> Iterator[tuple[EdgeMethod, PartitionPlan]]:
    """The graph, and those of its control flow."""
    yield edge, plan
    for call, regions in edge.regions.items():
        for region, inner in zip(regions, plan.regions[call], strict=True):
            yield from _graphs(region, inner)


def _rows(name: str, method: EdgeMethod, plan: PartitionPlan) -> list[ExplainRow]:
    rows = []
    for node in method.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem or is_size_node(node):
            continue
        taker = plan.taker.get(node)
        if is_precompiled(node):
            taker = precompiled(node).delegate.chosen.backend.name
        reasons = {backend: answer.reason for backend, answer in plan.verdicts[node].items() if not answer.supported}
        if taker is None:
            reasons |= {backend: ONLY_TOGETHER for backend, answer in plan.verdicts[node].items() if answer.supported}
        variant = kernel_of(node)
        kernel = variant.full_name if variant is not None else "jumps" if node in method.regions else None
        if taker is None and kernel is None:
            reasons[RUNTIME] = kernel_limit(node) or "the runtime has no kernel for it"
        stack = node.meta.get("nn_module_stack")
        rows.append(
            ExplainRow(
                method=name,
                node=node.name,
                operator=operator_name(node),
                module=str(next(reversed(stack.values()))[0]) if stack else "",
                source=source_line(node) or "",
                backend=taker,
                kernel=kernel if taker is None else None,
                reasons=reasons,
            )
        )
    return rows
