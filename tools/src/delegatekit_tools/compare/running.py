"""Lowers the pieces of a graph and runs them on the referee's values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from torch.fx import Node

from delegatekit.edge import EdgeMethod
from delegatekit.partition import PartitionedMethod, PartitionPlan
from delegatekit_api import DelegateKitError, RuntimeUnavailableError
from delegatekit_toolkit.accuracy import ROUNDOFF

from .cut import CutProgram, Piece, RefusedError, cut
from .following import choices_in
from .judging import Judge
from .lowerings import Lowerings
from .referee import Values
from .result import Measured
from .rounds import operands_in, traces
from .units import Unit, joined, units_of

_Item = TypeVar("_Item")
#: Pieces of one lowering. A compiler's memory planning is slow for many values that are alive at once.
_AT_ONCE: Final = 32


def coarsest_of(precisions: Iterable[str]) -> str:
    """The precision with the largest roundoff; float32 if there is none."""
    return max(precisions, key=lambda name: ROUNDOFF.get(name, 0.0), default="float32")


def batches(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    """The items in batches of one lowering.

    >>> [len(batch) for batch in batches(range(70))]
    [32, 32, 6]
    """
    return [items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE)]


@dataclass(frozen=True)
class Judged:
    """A piece that ran, or the reason why not."""

    measured: Mapping[Node, Measured]
    #: The reason why it could not be lowered, or run, though its backend takes it.
    failure: str = ""

    @property
    def wrong(self) -> bool:
        """True if an output is beyond its bound."""
        return any(not item.right for item in self.measured.values())


class Graph:
    """A graph whose pieces can be tried: the plan assigns each node, the values are the referee's."""

    def __init__(
        self, edge: EdgeMethod, plan: PartitionPlan, values: Values, lowerings: Lowerings, tighten: float
    ) -> None:
        self.edge, self.plan, self.values = edge, plan, values
        self._lowerings = lowerings
        self.tighten = tighten
        self._judge = Judge(edge, values, tighten)
        returned = [item for item in edge.outputs if isinstance(item, Node)]
        self._position = {node: index for index, node in enumerate(edge.graph.nodes)}
        self._returned = {*returned, *(buffer.updated for buffer in edge.buffers.values())}

    def units(self) -> tuple[list[Unit], dict[Node, str]]:
        """The units that can be lowered by themselves, and the nodes of those that cannot, with the reason."""
        units = units_of(self.edge, self.plan)
        alone: dict[Node, str] = {}
        while True:
            able = [unit for unit in units if unit.nodes[0] not in alone]
            try:
                self.cut([self.piece([unit]) for unit in able])
                return units, alone
            except RefusedError as refused:
                found = joined(units, self.edge, refused.reasons)
                if len(found) == len(units):  # nothing to join them with
                    unit_of = {node: unit.nodes[0] for unit in units for node in unit.nodes}
                    alone |= {unit_of[node]: reason for node, reason in refused.reasons.items()}
                units = found
                alone = {unit.nodes[0]: alone[unit.nodes[0]] for unit in units if unit.nodes[0] in alone}

    def piece(self, units: Sequence[Unit]) -> Piece:
        """The piece of consecutive units."""
        nodes = sorted((node for unit in units for node in unit.nodes), key=self._position.__getitem__)
        return Piece.of(nodes, units[0].partition, self._returned)

    def precision(self, piece: Piece) -> str:
        """The precision of the piece."""
        if any(node in self.edge.regions for node in piece.nodes):
            return coarsest_of(self._lowerings.precisions.values())  # of the nodes inside
        if piece.partition is None:
            return "float64"  # in the dtypes of the graph
        return self._lowerings.precisions[self.plan.partitions[piece.partition].backend]

    def attempt(self, pieces: Sequence[Piece]) -> list[Judged]:
        """The pieces judged, lowered side by side in `batches`."""
        return [judged for batch in batches(pieces) for judged in self._attempt(batch)]

    def _attempt(self, pieces: Sequence[Piece]) -> list[Judged]:
        """The pieces judged, lowered side by side; in halves if that fails, down to the one at fault."""
        try:
            results = self.results(pieces)
        except RuntimeUnavailableError:
            raise  # none of them could run
        except DelegateKitError as error:
            if len(pieces) == 1:
                return [Judged({}, str(error).splitlines()[0])]
            half = len(pieces) // 2
            return [*self._attempt(pieces[:half]), *self._attempt(pieces[half:])]
        return [self._judged(piece, results) for piece in pieces]

    def _judged(self, piece: Piece, results: Mapping[Node, Any]) -> Judged:
        """A piece that ran, judged; along the selections that it makes inside, if it is wrong otherwise."""
        found = Judged(self._judge.piece(piece, results, self.precision(piece)))
        opened, loops = self.opened(piece), operands_in(self.edge, piece.nodes)
        if not found.wrong or (opened == piece and not loops):
            return found
        try:
            shown = self.results([opened]) if opened != piece else dict(results)
        except DelegateKitError:  # they cannot be read
            return found
        given = {node: shown[node] if node in shown else self.values[node] for node in loops}
        inside = traces(self.edge, self.plan, piece.nodes, given, self._lowerings)
        seen = {node: value for node, value in shown.items() if node not in results}
        return Judged(self._judge.piece(piece, {**results, **seen}, self.precision(piece), inside))

    def opened(self, piece: Piece) -> Piece:
        """The same piece with the selections that it makes, and what loops read, among its outputs."""
        wanted = {*piece.outputs, *choices_in(piece.nodes).values(), *operands_in(self.edge, piece.nodes)}
        return replace(piece, outputs=tuple(node for node in piece.nodes if node in wanted))

    def results(self, pieces: Sequence[Piece]) -> dict[Node, Any]:
        """The pieces' outputs when they are lowered side by side."""
        program = self.cut(pieces)
        inputs = [self.values[node] for node in program.inputs]
        found = self._lowerings.run(PartitionedMethod(program.method, program.plan), inputs)
        return dict(zip(program.outputs, found, strict=True))

    def cut(self, pieces: Sequence[Piece]) -> CutProgram:
        """The program of these pieces. Raises RefusedError."""
        chosen = self._lowerings.chosen
        descriptions = {name: choice.backend.description for name, choice in chosen.items()}
        return cut(self.edge, self.plan, pieces, self._lowerings.partitioners, descriptions)
