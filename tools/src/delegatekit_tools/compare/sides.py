"""One side of a comparison: a program lowered for some backends, each of its operators judged against the referee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from delegatekit.edge import EdgeMethod, is_precompiled
from delegatekit.lowering import ChosenBackend
from delegatekit.partition import PartitionPlan
from delegatekit.pipeline import LoweredProgram
from delegatekit_api import DelegateKitError, RuntimeUnavailableError
from delegatekit_api.nodes import operator_name, source_line

from .cut import Piece
from .lowerings import Lowerings
from .referee import Values, evaluate, first_round, values_of
from .result import Measured, Operator, Output
from .running import Graph, Judged
from .units import Unit, is_conversion
from .whole import Whole, method_as_it_is


@dataclass(frozen=True)
class Tried:
    """A unit of a graph, the findings about it, and its description."""

    graph: Graph
    unit: Unit
    piece: Piece
    judged: Judged
    operator: Operator


@dataclass(frozen=True)
class Side:
    """A lowered program with all units that were tried."""

    program: LoweredProgram
    method: str
    lowerings: Lowerings
    tried: tuple[Tried, ...]
    whole: Whole
    #: The graphs that were tried: the method's, and those of control flow, with their units.
    graphs: tuple[tuple[Graph, tuple[Unit, ...]], ...]

    #: True if the program as it is cannot be run.
    fails: bool = False

    @property
    def wrong(self) -> Tried | None:
        """The first that exceeds its bound, or at which a program fails that fails as a whole."""
        return next((item for item in self.tried if item.judged.wrong or (self.fails and item.judged.failure)), None)


def try_side(
    program: LoweredProgram, method: str, inputs: Sequence[Any], lowerings: Lowerings, precision: str, tighten: float
) -> Side:
    """Judge a lowered method on these flat inputs: operator by operator, and as a whole.

    `precision` is the coarsest of all sides.
    """
    lowered = program.methods[method]
    graphs: list[tuple[Graph, tuple[Unit, ...]]] = []
    values = values_of(lowered.edge, inputs, precision)
    try:
        whole, fails = method_as_it_is(program, method, inputs, values, lowerings, tighten), False
    except RuntimeUnavailableError:
        raise
    except DelegateKitError as error:
        failed = Measured(difference=f"cannot be run: {error.what}", fails=True)
        whole, fails = Whole((Output("the whole", failed),)), True
    tried = tuple(_tried(lowered.edge, lowered.plan, values, lowerings, tighten, graphs, precision))
    tried = tuple(replace(item, operator=replace(item.operator, position=index)) for index, item in enumerate(tried))
    return Side(program, method, lowerings, tried, whole, tuple(graphs), fails)


def check_runs_here(chosen: Mapping[str, ChosenBackend]) -> None:
    """Raise RuntimeUnavailableError for a backend whose delegates cannot run here."""
    for name, choice in chosen.items():
        available = choice.backend.runtime_availability()
        if not available.available:
            raise RuntimeUnavailableError(
                f"cannot run its delegates here: {available.reason}",
                where=f"backend {name}",
                hint="what a device computes can only be compared where it runs; `lower` compiles all the same",
            )


def _tried(
    edge: EdgeMethod,
    plan: PartitionPlan,
    values: Values,
    lowerings: Lowerings,
    tighten: float,
    graphs: list[tuple[Graph, tuple[Unit, ...]]],
    precision: str,
) -> Iterator[Tried]:
    """The units of a graph in its order, each after those of its own graphs if it is control flow."""
    graph = Graph(edge, plan, values, lowerings, tighten)
    units, refused = graph.units()
    pieces = {unit: graph.piece([unit]) for unit in units}
    why = {unit: _why_not(graph, unit, refused, pieces[unit]) for unit in units}
    able = [unit for unit in units if not why[unit]]
    graphs.append((graph, tuple(able)))
    judged = dict(zip(able, graph.attempt([pieces[unit] for unit in able]), strict=True))
    for unit in units:
        for node in unit.nodes:
            for number, region in enumerate(edge.regions.get(node, ())):
                given = first_round(node, number, values.__getitem__)
                if given is not None:
                    inner = values_of(region, given, precision)
                    yield from _tried(region, plan.regions[node][number], inner, lowerings, tighten, graphs, precision)
        found = judged.get(unit, Judged({}))
        yield Tried(graph, unit, pieces[unit], found, described(unit, plan, found, why[unit] or found.failure))


def described(unit: Unit, plan: PartitionPlan, judged: Judged, skipped: str = "") -> Operator:
    """The description of a unit; `skipped` is the reason why it was not judged."""
    last = unit.last
    work = [node for node in unit.nodes if not is_conversion(node) and operator_name(node) != "getitem"]
    stack = last.meta.get("nn_module_stack")
    worst = max(judged.measured.values(), key=lambda item: (not item.right, item.share), default=Measured())
    place = (
        "runtime" if unit.partition is None else f"{plan.partitions[unit.partition].backend}, delegate {unit.partition}"
    )
    return Operator(
        tuple(operator_name(node) for node in work or [last]),
        last.name,
        0,
        last.meta.get("debug_handle"),
        str(next(reversed(stack.values()))[0]) if stack else "",
        source_line(last) or "",
        place,
        worst,
        skipped,
        tuple(node.name for node in unit.nodes),
    )


def _why_not(graph: Graph, unit: Unit, refused: Mapping[Node, str], piece: Piece) -> str:
    """The reason why a unit cannot be judged; empty if it can."""
    if unit.nodes[0] in refused:
        return f"cannot be lowered by itself: {refused[unit.nodes[0]]}"
    if any(map(is_precompiled, unit.nodes)):
        return "was compiled before: only its backend knows what it should compute"
    if not piece.outputs:
        return "computes no tensor"
    return "is random" if _is_random(graph, unit) else ""


def _is_random(graph: Graph, unit: Unit) -> bool:
    """True if another call may give other results: the operator is tagged as random, and is."""
    if not any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in unit.nodes):
        return False
    first, second = (evaluate(graph.edge, unit.nodes, graph.values) for _ in range(2))
    pairs = zip(tree_leaves(list(first.values())), tree_leaves(list(second.values())), strict=True)
    return not all(torch.equal(one, other) for one, other in pairs if isinstance(one, torch.Tensor))
