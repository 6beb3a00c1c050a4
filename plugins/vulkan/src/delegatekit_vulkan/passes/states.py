"""Lets the operator that computes the new value of a state overwrite the old one."""

from __future__ import annotations

from ..ir.graph import Graph, Tensor
from ..ir.stock import VIEW, facts_of


def write_in_place(graph: Graph) -> None:
    """Replace copies into state by the node that computes the copied value, if nothing reads the old value after it.

    Elements must depend only on those at their own positions, and have the same form.
    """
    kept = graph.kept()
    made_at = {value: at for at, node in enumerate(graph.nodes) for value in node.results if value not in kept}
    reads: dict[object, int] = {}
    for at, node in enumerate(graph.nodes):
        reads.update(dict.fromkeys(node.reads, at))
    dropped = set()
    for node in graph.nodes:
        if node.operator != VIEW or node.result not in kept or len(node.reads) != 1:
            continue
        source, state = node.reads[0], node.result
        assert isinstance(source, Tensor) and isinstance(state, Tensor)
        if source not in made_at or source in graph.outputs:
            continue
        at = made_at[source]
        maker = graph.nodes[at]
        if facts_of(maker).pointwise and reads.get(state, -1) <= at and _alike(source, state):
            maker.result = state
            for reader in graph.nodes:
                reader.replace(source, state)
            dropped.add(node)
            # The state is now read in place of the new value: no other copy may be made of it in place.
            reads[state] = max(reads.get(state, -1), reads[source])
    graph.nodes = [node for node in graph.nodes if node not in dropped]


def _alike(left: Tensor, right: Tensor) -> bool:
    """True if two tensors are stored in the same way."""
    forms = ((item.sizes, item.datatype, item.storage, item.layout) for item in (left, right))
    return len(set(forms)) == 1
