"""Passes over the graph before it is compiled."""

from __future__ import annotations

from ..ir.graph import Graph
from .unread import read_inputs, remove_unread


def run_passes(graph: Graph) -> None:
    """All passes, in order."""
    remove_unread(graph)
    read_inputs(graph)
