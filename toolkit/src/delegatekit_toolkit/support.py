"""Declared operator support: rows of operators, their constraints and their lowering, and the table made of them.

A row stands beside its lowering function, in one file for each family of operators. The table lists the families:

    # operators/elementwise.py
    def _abs(builder: Builder, call: Call) -> Tensor:
        return builder.unary("abs", builder.tensor(call["self"]))

    ROWS = (row("abs.default", _abs),)

    # support.py
    TABLE = SupportTable([*elementwise.ROWS, *linear.ROWS], common=(float32_tensors,))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from delegatekit_api import Call, MethodPlan, OptionError, ProgramView, Verdict

if TYPE_CHECKING:
    from torch.fx import Node

#: Returns the reason for refusing a call, or None. The first line of its docstring documents it in the tables.
Constraint: TypeAlias = Callable[[Call], "str | None"]

#: A lowering function for a call, with the backend's own signature.
LoweringT = TypeVar("LoweringT")


@dataclass(frozen=True)
class Row(Generic[LoweringT]):
    """A backend's declaration for some operators that it treats alike."""

    #: Full names of overloads: "aten.add.Tensor".
    operators: tuple[str, ...]
    #: The function that lowers a call of one of them.
    lower: LoweringT
    #: Checked in order, after those that hold for all rows; the first refusal counts.
    constraints: tuple[Constraint, ...] = ()
    #: Ask the core not to decompose the operators.
    keep: bool = False
    #: Take a call only in a partition with one that is not a passenger; a function decides for each call.
    passenger: bool | Callable[[Call], bool] = False
    #: Refuse calls with sizes that change from call to call (for backends that take such sizes in other operators).
    static_only: bool = False
    #: The inputs for which the results differ from PyTorch's (NaN, infinity, very large numbers), in words: "" if there
    #: are none. A function decides for each call.
    special_values: str | Callable[[Call], str] = ""
    #: Further facts about the operators for the backend, by name; the table passes them on unread.
    facts: Mapping[str, Any] = field(default_factory=dict)

    def is_passenger(self, call: Call) -> bool:
        """True if this call is a passenger."""
        return self.passenger if isinstance(self.passenger, bool) else self.passenger(call)

    def special_value(self, call: Call) -> str:
        """The inputs for which the results of this call differ from PyTorch's; "" if there are none."""
        return _said(self.special_values, call)


def row(
    operators: str,
    lower: LoweringT,
    *constraints: Constraint,
    keep: bool = False,
    passenger: bool | Callable[[Call], bool] = False,
    static_only: bool = False,
    special_values: str | Callable[[Call], str] = "",
    **facts: Any,
) -> Row[LoweringT]:
    """A row in short form: `operators` are names separated by spaces; "abs.default" means "aten.abs.default".

    >>> row("mm.default bmm.default", print).operators
    ('aten.mm.default', 'aten.bmm.default')
    """
    names = tuple(name if name.count(".") > 1 else f"aten.{name}" for name in operators.split())
    return Row(names, lower, constraints, keep, passenger, static_only, special_values, facts)


def _said(special_values: str | Callable[[Call], str], call: Call) -> str:
    return special_values if isinstance(special_values, str) else special_values(call)


class SupportTable(Mapping[str, Row[LoweringT]]):
    """Operator name -> row, with constraints and special values common to all rows.

    Raises ValueError if two rows name the same operator. With `foreign_sizes` the backend computes size arguments from
    those of any input of its delegate; without, a call takes the sizes of its own tensors only.

    >>> from delegatekit_toolkit.constraints import dtypes
    >>> from delegatekit_toolkit.testing import call_of
    >>> import torch
    >>> table = SupportTable([row("add.Tensor mul.Tensor", print)], common=[dtypes("float32")])
    >>> table.check(call_of(torch.add, torch.ones(2), torch.ones(2))).supported
    True
    >>> table.check(call_of(torch.sub, torch.ones(2), torch.ones(2))).reason
    "aten.sub.Tensor is not in the backend's operator table"
    """

    def __init__(
        self,
        rows: Iterable[Row[LoweringT]],
        *,
        common: Sequence[Constraint] = (),
        special_values: str | Callable[[Call], str] = "",
        foreign_sizes: bool = False,
    ) -> None:
        self._rows: Final[dict[str, Row[LoweringT]]] = {}
        self.common: Final = tuple(common)
        self.special_values: Final = special_values
        self._foreign_sizes: Final = foreign_sizes
        for entry in rows:
            for operator in entry.operators:
                if operator in self._rows:
                    raise ValueError(f"{operator} is in two rows of the support table")
                self._rows[operator] = entry

    def __getitem__(self, operator: str) -> Row[LoweringT]:
        return self._rows[operator]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def fact(self, call: Call, name: str) -> Any:
        """A fact of the call's row; None if the row has none of that name, or there is no row."""
        entry = self._rows.get(call.operator)
        return None if entry is None else entry.facts.get(name)

    def special_value(self, call: Call) -> str:
        """The inputs for which a call's results differ from PyTorch's, by its row and for all rows; "" for none."""
        said = (self._rows[call.operator].special_value(call), _said(self.special_values, call))
        return "; ".join(dict.fromkeys(filter(None, said)))

    def check(self, call: Call) -> Verdict:
        """The verdict of the call's row and of the common constraints; the first refusal counts."""
        entry = self._rows.get(call.operator)
        if entry is None:
            return Verdict.no(f"{call.operator} is not in the backend's operator table")
        if entry.static_only and (operand := next((item for item in call.tensors if item.is_dynamic), None)):
            return Verdict.no(
                f"{operand.name} {operand.shape} has sizes that change from call to call: "
                f"{call.operator} is taken with static ones only"
            )
        sizes = () if self._foreign_sizes else (own_sizes,)
        for constraint in (*sizes, *self.common, *entry.constraints):
            reason = constraint(call)
            if reason:
                return Verdict.no(reason)
        return Verdict.yes(passenger=entry.is_passenger(call))


def own_sizes(call: Call) -> str | None:
    """Size arguments depend only on the symbols in the sizes of the call's own tensors.

    >>> from delegatekit_toolkit.testing import call_of
    >>> import torch
    >>> changing = (({0: torch.export.Dim("n", max=9)},),)
    >>> own_sizes(call_of(lambda x: x.expand(2, x.shape[0]), torch.ones(3), dynamic_shapes=changing))
    >>> own_sizes(call_of(lambda x: torch.ones(1).expand(x.shape[0]), torch.ones(3), dynamic_shapes=changing))
    'the size s... is not a size of its inputs'
    """
    values: list[Any] = [item.meta.get("val") for item in call.node.all_input_nodes]
    own = {symbol for value in values for size in getattr(value, "shape", ()) for symbol in _symbols(size)}
    foreign = next((value for value in values if not _symbols(value) <= own), None)
    return None if foreign is None else f"the size {foreign} is not a size of its inputs"


def _symbols(size: Any) -> set[Any]:
    """The symbols of a size that changes; none for anything else."""
    return size.node.expr.free_symbols if hasattr(size, "node") else set()


class TablePartitioner:
    """A `Partitioner` based on a support table alone, without the operators that the user leaves out.

    With `whole_graph` it refuses methods that are not one delegate. Raises OptionError for a name in `leave_out` that
    matches none of the table's operators; `backend` is for its message.

    >>> table = SupportTable([row("add.Tensor", print), row("gelu.default", print, keep=True)])
    >>> TablePartitioner(table).keep_operators(), TablePartitioner(table, leave_out=["gelu"]).keep_operators()
    ({'aten.gelu.default'}, set())
    """

    def __init__(
        self,
        table: SupportTable[Any],
        *,
        leave_out: Collection[str] = (),
        whole_graph: bool = False,
        backend: str = "",
    ) -> None:
        check_left_out(leave_out, table, backend)
        self.table: Final = table
        self._left_out: Final = frozenset(leave_out)
        self._whole_graph: Final = whole_graph

    def keep_operators(self) -> Collection[str]:
        """The operators of rows with `keep`, less those left out."""
        return {name for name, entry in self.table.items() if entry.keep and not self.is_left_out(name)}

    def check(self, call: Call) -> Verdict:
        """The table's verdict."""
        if self.is_left_out(call.operator):
            return Verdict.no("left out by the option leave_out")
        return self.table.check(call)

    def special_values(self, call: Call) -> str:
        """The inputs for which the results of a call differ from PyTorch's, by the table; "" if there are none.

        The conformance suite calls this if a result is wrong. A partitioner without a table may have such a method,
        too.
        """
        entry = self.table.get(call.operator)
        return "" if entry is None else self.table.special_value(call)

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]] | None:
        """None: the core forms the partitions."""
        return None

    def plan_reason(self, plan: MethodPlan) -> str | None:
        """The reason for refusing a method: with `whole_graph` it must be one delegate."""
        if not self._whole_graph or plan.is_whole:
            return None
        if plan.outside:
            return f"whole_graph is set, and outside of the delegate would be {plan.left}"
        return f"whole_graph is set, and the method would be {plan.delegates} delegates"

    def is_left_out(self, operator: str) -> bool:
        """True if the user leaves the operator out."""
        return bool(self._left_out & leavable_names(operator))


def leavable_names(operator: str) -> frozenset[str]:
    """The names by which a user may leave an operator out.

    >>> sorted(leavable_names("aten.add.Tensor"))
    ['add', 'aten.add', 'aten.add.Tensor']
    """
    packet = operator.rpartition(".")[0]
    return frozenset((operator, packet, packet.partition(".")[2]))


def check_left_out(leave_out: Collection[str], operators: Iterable[str], backend: str = "") -> None:
    """Raise OptionError for the first name in `leave_out` that matches none of the backend's operators.

    >>> check_left_out(["relu"], ["aten.add.Tensor"], "mine")
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.OptionError: option of backend mine: leave_out names 'relu', which is not an operator ...
    """
    known = frozenset().union(*map(leavable_names, operators))
    for name in sorted(leave_out):
        if name not in known:
            raise OptionError(
                f"leave_out names {name!r}, which is not an operator that the backend takes",
                where=f"option of backend {backend}" if backend else "backend option",
                hint="names look like aten.add.Tensor, aten.add or add",
            )
