"""Explains a partition plan: for every node who runs it, and why the backends that do not take it leave it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass

from delegatekit_api import operator_name, source_line

from .edge import EdgeMethod
from .emit import kernel_limit, kernel_of
from .partition import PartitionPlan

#: The runtime's own operators, among the reasons.
RUNTIME = "runtime"


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


def explain_plan(plans: Mapping[str, tuple[EdgeMethod, PartitionPlan]], backends: tuple[str, ...]) -> Explanation:
    """Make the explanation of partition plans that asked every backend about every node."""
    rows: list[ExplainRow] = []
    for name, (method, plan) in plans.items():
        for node in method.graph.nodes:
            if node.op != "call_function" or node.target is operator.getitem:
                continue
            taker = plan.taker.get(node)
            reasons = {
                backend: answer.reason for backend, answer in plan.verdicts[node].items() if not answer.supported
            }
            if taker is None:
                reasons |= {
                    backend: "takes it only together with operators that compute something"
                    for backend, answer in plan.verdicts[node].items()
                    if answer.supported
                }
            variant = kernel_of(node)
            if taker is None and variant is None:
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
                    kernel=variant.full_name if taker is None and variant is not None else None,
                    reasons=reasons,
                )
            )
    return Explanation(tuple(rows), backends)
