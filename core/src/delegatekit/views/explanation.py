"""Explains partitioning: who runs each node, and why the backends that do not take it leave it.

Nodes that were decomposed because nothing runs them whole are told, too, with the reasons of the round in which they
were refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from delegatekit_api import UnsupportedError
from delegatekit_toolkit.passes import Change

from ..lowering import graphs_of
from ..partition import PartitionedMethod
from .page import page
from .rows import ExplainRow, decomposed_row, rows_of


@dataclass(frozen=True)
class Explanation:
    """All nodes of all methods, in graph order.

    `rows` are the nodes of the program that is lowered; `decomposed` those that were asked about before and then
    decomposed, because no backend took them and the runtime cannot run them, in the order of the rounds; `refused` says
    which backends refuse the whole, and why: lowering would raise an error; `changes` what passes changed before.
    """

    rows: tuple[ExplainRow, ...]
    backends: tuple[str, ...]
    decomposed: tuple[ExplainRow, ...] = ()
    refused: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    #: What the page draws.
    methods: Mapping[str, PartitionedMethod] = field(default_factory=dict, repr=False, compare=False)

    @property
    def unsupported(self) -> tuple[ExplainRow, ...]:
        """The nodes that nothing can run: lowering would refuse the program because of them."""
        return tuple(row for row in self.rows if not row.runnable)

    def html(self, title: str = "Delegation report") -> str:
        """The delegation report: one page with the graph, who runs what, and why; it needs no network."""
        return page(title, self.methods, self.refused)

    def __str__(self) -> str:
        refused = [f"REFUSED: {reason}" for reason in self.refused]
        changed = [f"changed by {change}" for change in self.changes]
        return "\n".join(
            [*changed, *(line for row in (*self.decomposed, *self.rows) for line in row.lines()), *refused]
        )


def explain_plan(
    methods: Mapping[str, PartitionedMethod], backends: tuple[str, ...], refused: Iterable[UnsupportedError] = ()
) -> Explanation:
    """Make the explanation of partition plans that asked every backend about every node.

    `refused` is what backends say that refuse a method as it is planned.
    """
    rows: list[ExplainRow] = []
    decomposed: list[ExplainRow] = []
    for name, method in methods.items():
        decomposed.extend(decomposed_row(name, item) for item in method.decompositions)
        for edge, plan in graphs_of(method.edge, method.plan):
            rows.extend(row for _, row in rows_of(name, edge, plan))
    return Explanation(
        tuple(rows),
        backends,
        tuple(decomposed),
        tuple(f"{error.where}: {error.what}" for error in refused),
        tuple(change for method in methods.values() for change in method.changes),
        methods,
    )
