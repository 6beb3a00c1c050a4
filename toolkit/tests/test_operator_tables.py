"""A support table's documentation page follows from its rows."""

from __future__ import annotations

import pytest

from delegatekit_api import Call
from delegatekit_api.documentation import OperatorEntry, OperatorTable
from delegatekit_toolkit.constraints import equals, max_rank
from delegatekit_toolkit.operator_tables import operator_table
from delegatekit_toolkit.support import SupportTable, row

ROWS = (
    row("sub.Tensor", print, equals("alpha", 1), static_only=True),
    row("Add.Tensor", print, keep=True, passenger=True),
    row("view.default", print, max_rank(2), passenger=lambda call: True),
)


def test_rows_become_entries_in_the_order_of_names() -> None:
    table = operator_table({"conditions": SupportTable(ROWS, common=(max_rank(4),))})
    assert table == OperatorTable(
        entries=(
            OperatorEntry("aten.Add.Tensor", ("",), whole=True, passenger=True),
            OperatorEntry("aten.sub.Tensor", ("No size changes from call to call. alpha is 1.",)),
            OperatorEntry("aten.view.default", ("At most 2 axes.",), passenger=None),
        ),
        common=("At most 4 axes.",),
    )


def test_tables_of_several_devices_stand_side_by_side() -> None:
    small = SupportTable([row("a.b", print, max_rank(2)), row("c.d", print), row("e.f", print, max_rank(2))])
    large = SupportTable([row("a.b", print, max_rank(4)), row("c.d", print), row("e.f", print, max_rank(2))])
    table = operator_table({"small": small, "large": large})
    assert table.columns == ("small", "large")
    assert [entry.conditions for entry in table.entries] == [
        ("At most 2 axes.", "At most 4 axes."),
        ("", ""),
        ("At most 2 axes.", "the same"),
    ]


def test_tables_of_different_operators_cannot_stand_side_by_side() -> None:
    with pytest.raises(ValueError, match="different operators"):
        operator_table({"small": SupportTable(ROWS[:1]), "large": SupportTable(ROWS)})


def test_a_constraint_without_docstring_is_named() -> None:
    def silent(call: Call) -> str | None: ...

    with pytest.raises(ValueError, match="silent"):
        operator_table({"conditions": SupportTable([row("a.b", print, silent)])})


def test_an_entry_has_a_text_for_each_column() -> None:
    with pytest.raises(ValueError, match=r"a\.b has 1 texts for 2 columns"):
        OperatorTable((OperatorEntry("a.b", ("",)),), columns=("small", "large"))
