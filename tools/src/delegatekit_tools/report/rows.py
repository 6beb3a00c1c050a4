"""One row for each node: what runs it, its origin, and why other backends do not take it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch.fx import Node

from delegatekit.edge import EdgeMethod, called_module, is_precompiled
from delegatekit.fallback import kernel_of, refusal
from delegatekit.lowering import is_work, reasons_left
from delegatekit.partition import Decomposition, PartitionPlan
from delegatekit_api.nodes import operator_name, source_line
from delegatekit_toolkit.source_paths import short_source

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
    #: The backend that runs the node; None for the runtime's own operators, or nothing.
    backend: str | None
    #: The runtime's kernel if no backend runs the node ("aten::add.out"); None if there is no kernel.
    kernel: str | None
    #: Backend -> the reason why it refuses the node; `RUNTIME` -> why the runtime's own operators cannot run it.
    reasons: Mapping[str, str]
    #: For a node that was decomposed because nothing runs it whole: the operators that it became.
    became: tuple[str, ...] = ()
    #: The round of partitioning in which a decomposed node was refused, counted from 1; 0 for the nodes that are left.
    round: int = 0

    @property
    def runnable(self) -> bool:
        """True if a backend or the runtime can run the node."""
        return self.backend is not None or self.kernel is not None

    def lines(self) -> Iterator[str]:
        """The row as text: what runs the node, and if no backend does, each reason on a line of its own."""
        who = self.backend or (f"runtime ({self.kernel})" if self.kernel else "NOTHING RUNS IT")
        if self.round:
            who = f"decomposed into {', '.join(self.became) or 'existing operators'}"
        place = ", ".join(part for part in (self.module, short_source(self.source)) if part)
        yield f"{self.method}: {self.operator} ({self.node}): {who}" + (f"   [{place}]" if place else "")
        if self.backend is None:
            yield from (f"    {backend}: {reason}" for backend, reason in self.reasons.items())


def decomposed_row(method: str, item: Decomposition) -> ExplainRow:
    """The row of a node that was decomposed because nothing runs it whole."""
    became = [operator_name(node) for node in item.became if is_work(node)]
    reasons = {**reasons_left(item.verdicts), RUNTIME: item.refusal}
    row = _row(method, item.node, None, None, reasons)
    return replace(row, became=tuple(dict.fromkeys(became)), round=item.round)


def rows_of(name: str, method: EdgeMethod, plan: PartitionPlan) -> Iterator[tuple[Node, ExplainRow]]:
    """The rows of one graph's nodes, in the order of the graph; graphs of control flow are separate."""
    for node in filter(is_work, method.graph.nodes):
        taker, verdicts = plan.taker.get(node), plan.verdicts[node]
        if is_precompiled(node):
            taker = called_module(node).delegate.chosen.backend.name
        if taker is not None:
            reasons = {backend: answer.reason for backend, answer in verdicts.items() if not answer.supported}
            yield node, _row(name, node, taker, None, reasons)
            continue
        variant = kernel_of(node)
        kernel = variant.full_name if variant is not None else "jumps" if node in method.regions else None
        reasons = reasons_left(verdicts)
        if kernel is None:
            reasons[RUNTIME] = refusal(node) or "the runtime cannot run it"
        yield node, _row(name, node, None, kernel, reasons)


def _row(method: str, node: Node, backend: str | None, kernel: str | None, reasons: Mapping[str, str]) -> ExplainRow:
    stack = node.meta.get("nn_module_stack")
    return ExplainRow(
        method=method,
        node=node.name,
        operator=operator_name(node),
        module=str(next(reversed(stack.values()))[0]) if stack else "",
        source=source_line(node) or "",
        backend=backend,
        kernel=kernel,
        reasons=reasons,
    )
