"""Support tables: rows of nodes, the order of constraints, and operators that users leave out."""

from __future__ import annotations

import pytest
import torch
from torch.fx import Graph, Node

from delegatekit_api import Call, MethodPlan, OptionError, ProgramView, Verdict
from delegatekit_toolkit.support import SupportTable, TablePartitioner, check_left_out, leavable_names, row
from delegatekit_toolkit.testing import call_of

aten = torch.ops.aten


def graph() -> tuple[Graph, dict[str, Node]]:
    """x + x, then relu, then a gelu, then the first part of a split."""
    made = Graph()
    x = made.placeholder("x")
    add = made.call_function(aten.add.Tensor, (x, x))
    relu = made.call_function(aten.relu.default, (add,))
    gelu = made.call_function(aten.gelu.default, (relu,))
    made.output((gelu,))
    return made, {"x": x, "add": add, "relu": relu, "gelu": gelu}


GRAPH, NODES = graph()
VIEW = ProgramView(GRAPH, {}, (NODES["x"],), (NODES["gelu"],))


def no_relu(call: Call) -> str | None:
    """Refuses operators called relu."""
    return "it is a relu" if "relu" in call.node.name else None


def never(call: Call) -> str | None:
    """Refuses everything."""
    return f"never: {call.program.method}"


def lower(call: Call) -> str:
    """A lowering that returns the operator's name."""
    return call.operator


ROWS = (
    row("add.Tensor", lower, passenger=True),
    row("relu.default", lower, never),
    row("gelu.default hardswish.default", lower, keep=True),
)


def test_a_row_without_constraints_takes_its_operator() -> None:
    table = SupportTable(ROWS)
    assert table.check(Call(NODES["gelu"], VIEW)) == Verdict.yes()
    assert table.check(Call(NODES["add"], VIEW)) == Verdict.yes(passenger=True)


def test_an_operator_without_a_row_is_refused_by_name() -> None:
    verdict = SupportTable(ROWS[:1]).check(Call(NODES["gelu"], VIEW))
    assert verdict == Verdict.no("aten.gelu.default is not in the backend's operator table")


def test_the_first_refusal_counts_and_common_constraints_come_first() -> None:
    assert SupportTable(ROWS).check(Call(NODES["relu"], VIEW)).reason == "never: forward"
    assert SupportTable(ROWS, common=(no_relu,)).check(Call(NODES["relu"], VIEW)).reason == "it is a relu"
    assert SupportTable(ROWS, common=(no_relu,)).check(Call(NODES["add"], VIEW)).supported


def test_a_table_takes_sizes_of_other_tensors_where_it_says_so() -> None:
    x = torch.ones(3)
    changing = (({0: torch.export.Dim("n", max=9)}, None),)
    rows = [row("expand.default", lower)]
    foreign = call_of(lambda x, y: y.expand(x.shape[0]), x, torch.ones(1), dynamic_shapes=changing)
    own = call_of(lambda x, y: x.expand(2, x.shape[0]), x, torch.ones(1), dynamic_shapes=changing)
    assert "is not a size of its inputs" in SupportTable(rows).check(foreign).reason
    assert SupportTable(rows).check(own).supported
    assert SupportTable(rows, foreign_sizes=True).check(foreign).supported


def test_a_table_is_a_mapping_of_its_rows() -> None:
    table = SupportTable(ROWS)
    assert list(table) == [operator for entry in ROWS for operator in entry.operators]
    assert len(table) == 4
    assert table["aten.hardswish.default"].lower(Call(NODES["gelu"], VIEW)) == "aten.gelu.default"
    assert table["aten.add.Tensor"] is ROWS[0]
    assert "aten.mul.Tensor" not in table


def test_two_rows_for_one_operator_are_refused() -> None:
    with pytest.raises(ValueError, match=r"aten\.add\.Tensor is in two rows"):
        SupportTable([*ROWS, row("mul.Tensor add.Tensor", lower)])


def test_a_refusal_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        Verdict.no("")


def test_a_verdict_keeps_the_nodes_of_its_group() -> None:
    verdict = Verdict.yes(group=iter([NODES["add"], NODES["relu"]]))
    assert verdict.group == (NODES["add"], NODES["relu"])


@pytest.mark.parametrize("name", ["aten.add.Tensor", "aten.add", "add"])
def test_an_operator_is_left_out_by_full_name_by_packet_or_by_its_bare_name(name: str) -> None:
    partitioner = TablePartitioner(SupportTable(ROWS), leave_out={name})
    assert partitioner.check(Call(NODES["add"], VIEW)) == Verdict.no("left out by the option leave_out")
    assert partitioner.check(Call(NODES["gelu"], VIEW)).supported


@pytest.mark.parametrize("name", ["aten", "Tensor", "add.Tensor", "ad", "aten.add.Scalar", "", "aten.add."])
def test_a_name_that_is_only_similar_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match="not an operator that the backend takes"):
        TablePartitioner(SupportTable(ROWS), leave_out={name})


def test_rows_may_decide_for_each_call() -> None:
    entry = row("add.Tensor", lower, passenger=lambda call: call["alpha"] == 1, special_values=lambda call: "NaN")
    call = Call(NODES["add"], VIEW)
    assert SupportTable([entry]).check(call) == Verdict.yes(passenger=True)
    assert entry.special_value(call) == "NaN"
    assert row("add.Tensor", lower).special_value(call) == ""


def test_special_values_of_a_table_are_those_of_every_row() -> None:
    rows = [row("add.Tensor", lower, special_values="one zero"), row("gelu.default", lower, keep=True)]
    partitioner = TablePartitioner(SupportTable(rows, special_values=lambda call: "no NaN" if call.operator else ""))
    assert partitioner.special_values(Call(NODES["add"], VIEW)) == "one zero; no NaN"
    assert partitioner.special_values(Call(NODES["gelu"], VIEW)) == "no NaN"
    assert TablePartitioner(SupportTable(rows[:1])).special_values(Call(NODES["gelu"], VIEW)) == ""


def test_facts_of_a_row_are_passed_on() -> None:
    assert row("add.Tensor", lower, computes_in="float32").facts == {"computes_in": "float32"}


def test_operators_left_out_are_not_kept_whole() -> None:
    assert set(TablePartitioner(SupportTable(ROWS)).keep_operators()) == {"aten.gelu.default", "aten.hardswish.default"}
    assert set(TablePartitioner(SupportTable(ROWS), leave_out=["gelu"]).keep_operators()) == {"aten.hardswish.default"}


def test_a_table_leaves_the_grouping_to_core() -> None:
    assert TablePartitioner(SupportTable(ROWS)).propose(VIEW) is None


def test_names_that_leave_nothing_out_are_refused() -> None:
    assert leavable_names("aten.add.Tensor") == {"aten.add.Tensor", "aten.add", "add"}
    check_left_out({"add", "aten.relu"}, ["aten.add.Tensor", "aten.relu.default"], "mine")
    with pytest.raises(OptionError, match=r"option of backend mine: leave_out names 'gelu', which is not an operator"):
        check_left_out({"add", "gelu"}, ["aten.add.Tensor"], "mine")


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (MethodPlan("forward", 1), None),
        (MethodPlan("forward", 0), "whole_graph is set, and the method would be 0 delegates"),
        (MethodPlan("forward", 2), "whole_graph is set, and the method would be 2 delegates"),
        (
            MethodPlan("forward", 1, {NODES["add"]: "it is one too many"}),
            "whole_graph is set, and outside of the delegate would be 1 operator: aten.add.Tensor (add_tensor): "
            "it is one too many",
        ),
    ],
)
def test_with_whole_graph_a_method_must_be_one_delegate(plan: MethodPlan, reason: str | None) -> None:
    assert TablePartitioner(SupportTable(ROWS)).plan_reason(plan) is None
    assert TablePartitioner(SupportTable(ROWS), whole_graph=True).plan_reason(plan) == reason
