"""The snippet of pieces that are wrong, verified before it is returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Node

from delegatekit.engine import load
from delegatekit.pipeline import lower
from delegatekit_api import DelegateKitError

from .cut import Piece
from .judging import Judge
from .lowerings import Lowerings
from .result import Measured
from .running import Graph
from .snippet import Snippet, module_of, stand_ins, why_none, write


def shown(
    graph: Graph,
    pieces: Sequence[Piece],
    lowerings: Lowerings,
    options: Mapping[str, Mapping[str, Any]],
    *,
    fails: bool = False,
) -> Snippet:
    """A program, verified to show that one of the pieces is wrong, or fails; or the reason why there is none.

    If random inputs like the real ones show it, it computes with them; else it contains the real ones.
    """
    nodes = [node for piece in pieces for node in piece.nodes]
    pieces = [graph.opened(piece) for piece in pieces]
    reason = why_none(graph.edge, nodes)
    if reason:
        return Snippet("", reason, {})
    program = graph.cut(pieces)
    module = module_of(program)
    names = list(lowerings.chosen)
    used = {name: found for name, found in options.items() if name in names}
    inputs = [node for node in program.inputs if hasattr(graph.values[node], "dtype")]
    for drawn in (inputs, []):
        values = {**graph.values, **stand_ins(graph.values, drawn)}
        wrong = _wrong(graph, pieces, module, program.inputs, values, lowerings, used)
        if wrong is not None and (fails or not wrong.fails):
            return write(program, graph.values, drawn, names, used, wrong)
    return Snippet("", "exported once more by itself, it is right", {})


def _wrong(
    graph: Graph,
    pieces: Sequence[Piece],
    module: Any,
    inputs: Sequence[Node],
    values: Mapping[Node, Any],
    lowerings: Lowerings,
    options: Mapping[str, Mapping[str, Any]],
) -> Measured | None:
    """The fault of the module when it is lowered with these values; None if there is none."""
    given = tuple(values[node] for node in inputs)
    lowerings.count += 1
    try:
        program = lower(module, given, backends=list(lowerings.chosen), options=options, compiling=lowerings.compiling)
        with load(program.buffer) as loaded:
            found = [item.clone() for item in loaded["forward"].run(given)]
    except DelegateKitError as error:
        return Measured(difference=error.what, fails=True)
    outputs = [node for piece in pieces for node in piece.outputs]
    results = dict(zip(outputs, found, strict=True))
    judge = Judge(graph.edge, values, graph.tighten)
    for piece in pieces:
        for measured in judge.piece(piece, results, graph.precision(piece)).values():
            if not measured.right:
                return measured
    return None
