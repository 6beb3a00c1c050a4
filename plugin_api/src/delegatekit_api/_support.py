"""Declared operator support: a table of operators and constraints that answers "mine" or "no, because ..."."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final, runtime_checkable

from ._errors import OptionError
from ._nodes import dynamic_operand, operator_name
from ._program import Call, ProgramView

if TYPE_CHECKING:
    from torch.fx import Node


@final
@dataclass(frozen=True)
class Verdict:
    """A backend's answer about one node.

    A refusal always has a reason in words. A `passenger` is taken only in the company of a node that is not one: a
    reshape alone is not worth a delegate call. `group` names further nodes that stand or fall with this one (the
    quantize and dequantize around an operator).
    """

    supported: bool
    reason: str = ""
    passenger: bool = False
    group: tuple[Node, ...] = ()

    @classmethod
    def yes(cls, *, passenger: bool = False, group: Iterable[Node] = ()) -> Verdict:
        """The backend takes the node."""
        return cls(True, passenger=passenger, group=tuple(group))

    @classmethod
    def no(cls, reason: str) -> Verdict:
        """The backend leaves the node, because of `reason` (not empty)."""
        if not reason:
            raise ValueError("a refusal needs a reason")
        return cls(False, reason)


#: A constraint returns why it refuses the node, or None. The first line of its docstring documents it in the tables.
Constraint = Callable[["Node", ProgramView], "str | None"]


@dataclass(frozen=True)
class OperatorSupport:
    """One row of a support table.

    `operator` is the overload's name, "aten.add.Tensor". `keep` asks core not to decompose it.
    """

    operator: str
    constraints: tuple[Constraint, ...] = ()
    keep: bool = False
    passenger: bool = False
    #: Refuse the operator where a size changes from call to call (for backends that take such sizes elsewhere).
    static_only: bool = False


class SupportTable(Mapping[str, OperatorSupport]):
    """Operator name -> row, with constraints that hold for all of them.

    Raises ValueError if two rows name the same operator.
    """

    def __init__(self, rows: Iterable[OperatorSupport], *, common: Sequence[Constraint] = ()) -> None:
        self._rows: Final[dict[str, OperatorSupport]] = {}
        self.common: Final = tuple(common)
        for row in rows:
            if row.operator in self._rows:
                raise ValueError(f"{row.operator} stands twice in the support table")
            self._rows[row.operator] = row

    def __getitem__(self, operator: str) -> OperatorSupport:
        return self._rows[operator]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def check(self, node: Node, program: ProgramView) -> Verdict:
        """The verdict of the row of the node's operator and of the common constraints; the first refusal counts."""
        name = operator_name(node)
        row = self._rows.get(name)
        if row is None:
            return Verdict.no(f"{name} is not in the backend's operator table")
        if row.static_only and (dynamic := dynamic_operand(node)) is not None:
            return Verdict.no(
                f"{dynamic} has sizes that change from call to call: {name} is taken with static ones only"
            )
        for constraint in (*self.common, *row.constraints):
            reason = constraint(node, program)
            if reason:
                return Verdict.no(reason)
        return Verdict.yes(passenger=row.passenger)


class Partitioner(Protocol):
    """Answers about nodes; core forms the partitions."""

    def keep_operators(self) -> Collection[str]:
        """Names of operators ("aten.gelu.default") that core should not decompose."""
        ...

    def check(self, call: Call) -> Verdict:
        """Whether the backend takes a call of the edge program. Must not change anything."""
        ...

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]] | None:
        """Partitions of the backend's own choice, which core checks; None leaves the grouping to core."""
        ...


@runtime_checkable
class IntegerPartitioner(Partitioner, Protocol):
    """A partitioner of a backend that also takes quantized layers that it then computes in float.

    Optional: without it, what is taken between a dequantize and a quantize counts as computed on integers.
    """

    def float_reason(self, layer: Sequence[Call]) -> str | None:
        """Why a layer would be computed in float; None if it is on the integers.

        `layer` are calls that the backend takes, in graph order: the dequantizes of the operands, operators, and the
        quantizes of the results. `quantize` asks, to leave the layer as it is: rounding it would gain nothing.
        """
        ...


def leavable_names(operator: str) -> frozenset[str]:
    """The names by which a user may leave an operator out: "aten.add.Tensor", "aten.add" and "add"."""
    packet = operator.rpartition(".")[0]
    return frozenset((operator, packet, packet.partition(".")[2]))


def check_left_out(leave_out: Collection[str], operators: Iterable[str], backend: str) -> None:
    """Raise OptionError for the first name in `leave_out` that is none of the backend's operators."""
    known = frozenset().union(*map(leavable_names, operators))
    for name in sorted(leave_out):
        if name not in known:
            raise OptionError(
                f"leave_out names {name!r}, which is no operator that the backend takes",
                where=f"option of backend {backend}",
                hint="names look like aten.add.Tensor, aten.add or add",
            )


class TablePartitioner:
    """A `Partitioner` that is nothing but a support table, less the operators that the user leaves out."""

    def __init__(self, table: SupportTable, *, leave_out: Collection[str] = ()) -> None:
        self._table: Final = table
        self._left_out: Final = frozenset(leave_out)

    def keep_operators(self) -> Collection[str]:
        """The table's rows with `keep`, less those left out."""
        return {name for name, row in self._table.items() if row.keep and not self._is_left_out(name)}

    def check(self, call: Call) -> Verdict:
        """The table's verdict."""
        if self._is_left_out(call.operator):
            return Verdict.no("left out by the option leave_out")
        return self._table.check(call.node, call.program)

    def propose(self, program: ProgramView) -> None:
        """Core groups."""
        return

    def _is_left_out(self, name: str) -> bool:
        return bool(self._left_out & leavable_names(name))
