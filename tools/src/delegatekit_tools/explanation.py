"""Explains partitioning: what runs each node, and why other backends do not take it.

Nodes that were decomposed because nothing runs them whole are included, with the reasons of the round in which they
were refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from delegatekit.lowering import graphs_of
from delegatekit.partition import PartitionedMethod
from delegatekit.pipeline import Partitioning, plan, takes
from delegatekit_toolkit.passes import Change

from .page import page
from .report.rows import ExplainRow, decomposed_row, rows_of


@dataclass(frozen=True)
class Explanation:
    """All nodes of all methods, in graph order.

    `rows` are the nodes of the program that is lowered; `decomposed` those that were asked about before and then
    decomposed, because no backend took them and the runtime cannot run them, in the order of the rounds; `refused` has
    the backends that refuse the whole, and why: lowering would fail; `changes` are those made by passes before.
    """

    rows: tuple[ExplainRow, ...]
    backends: tuple[str, ...]
    decomposed: tuple[ExplainRow, ...] = ()
    refused: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    #: The drawing of the page.
    methods: Mapping[str, PartitionedMethod] = field(default_factory=dict, repr=False, compare=False)

    @property
    def unsupported(self) -> tuple[ExplainRow, ...]:
        """The nodes that nothing can run: lowering would fail because of them."""
        return tuple(row for row in self.rows if not row.runnable)

    def html(self, title: str = "Delegation report") -> str:
        """The delegation report: one page with the graph, what runs each operator, and why; it needs no network."""
        return page(title, self.methods, self.refused, backends=self.backends)

    def __str__(self) -> str:
        refused = [f"REFUSED: {reason}" for reason in self.refused]
        changed = [f"changed by {change}" for change in self.changes]
        return "\n".join(
            [*changed, *(line for row in (*self.decomposed, *self.rows) for line in row.lines()), *refused]
        )


@takes(Partitioning)
def explain(given: Partitioning) -> Explanation:
    """Show for every node what would run it, and why each other backend does not take it. Compiles nothing.

    Raises as `lower` does; refusals of backends are in `Explanation.refused`.
    """
    planned = plan(**vars(given), every=True)
    rows: list[ExplainRow] = []
    decomposed: list[ExplainRow] = []
    for name, method in planned.methods.items():
        decomposed.extend(decomposed_row(name, item) for item in method.decompositions)
        for edge, graph_plan in graphs_of(method.edge, method.plan):
            rows.extend(row for _, row in rows_of(name, edge, graph_plan))
    return Explanation(
        tuple(rows),
        tuple(planned.backends),
        tuple(decomposed),
        tuple(f"{error.where}: {error.what}" for error in planned.refused),
        tuple(change for method in planned.methods.values() for change in method.changes),
        planned.methods,
    )
