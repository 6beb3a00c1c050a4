"""Sizes that no tensor of a node has: it joins only a delegate whose inputs have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from partitioning import Rule, check_plan
from torch.export import Dim
from torch.fx import Node

from delegatekit.edge import EdgeMethod, build_edge
from delegatekit.lowering import partition_program
from delegatekit.partition import PartitionPlan, Selection, partition
from delegatekit_api import BackendDescription, Call, LoweringError, Verdict
from delegatekit_toolkit.testing import as_module

N, M = Dim("n", min=1, max=9), Dim("m", min=1, max=7)
SIZES = {"one": BackendDescription("one", "OneBackend", "one", "1", "takes sizes", supports_dynamic_shapes=True)}
SIZES["two"] = SIZES["one"]
X = torch.randn(3, 4)


def edge_of(function: Callable[..., Any], *inputs: torch.Tensor, sizes: Any = (({0: N},),)) -> EdgeMethod:
    return build_edge(torch.export.export(as_module(function), inputs, dynamic_shapes=sizes))


def partitioned(method: EdgeMethod, *rules: Rule, check: bool = True) -> PartitionPlan:
    plan = partition(method, dict(zip(("one", "two"), rules, strict=False)), descriptions=SIZES)
    if check:
        check_plan(method, plan)
    return plan


def all_but(*operators: str) -> Rule:
    return Rule(lambda node: short(node) not in operators)


def short(node: Node) -> str:
    return str(node.target).split(".")[1]


def taken(plan: PartitionPlan) -> list[list[str]]:
    return [[short(node) for node in found.nodes] for found in plan.partitions]


def refusals(plan: PartitionPlan) -> dict[str, str]:
    return {
        short(node): answer.reason
        for node, answers in plan.verdicts.items()
        for answer in answers.values()
        if not answer.supported and answer.reason != "not picked"
    }


def test_counting_to_a_size_joins_what_reads_a_tensor_of_that_size() -> None:
    method = edge_of(lambda x: x.sin() + torch.arange(x.shape[0]).unsqueeze(1), X)
    plan = partitioned(method, all_but())
    (found,) = plan.partitions
    assert plan.fallback == tuple(node for node in plan.fallback if short(node) == "sym_size")
    assert all(isinstance(node.meta["val"], torch.Tensor) for node in found.inputs)
    program = partition_program(method, found)
    for rows in (1, 3, 9):
        x = torch.randn(rows, 4)
        (got,) = program.exported_program.module(check_guards=False)(x)
        torch.testing.assert_close(got, x.sin() + torch.arange(rows).unsqueeze(1), atol=0, rtol=0)


def test_nodes_that_need_a_size_are_no_delegate_by_themselves() -> None:
    method = edge_of(lambda x: (x.sin(), (torch.arange(x.shape[0]) * 2).cos()), X)
    plan = partitioned(method, all_but("sin"))
    # The remaining node reads a tensor of that size.
    assert taken(plan) == [["mul", "cos"]]
    assert refusals(plan) == {
        "arange": f"the size {method.inputs[0].meta['val'].shape[0]} is not a size of its delegate's inputs"
    }


def test_the_size_may_be_that_of_any_input_and_of_another_form() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sin() + (torch.arange(4) + y.shape[0]) * (y.shape[0] // 2)

    method = edge_of(lambda x, y: (function(x, y), y.cos()), X, torch.randn(6, 2), sizes=((None, {0: 2 * M}),))
    assert len(partitioned(method, all_but()).partitions) == 1
    alone = partitioned(method, all_but("cos"))
    assert "add" in refusals(alone) and len(alone.partitions) >= 1


def test_a_size_that_values_decide_is_never_taken() -> None:
    method = edge_of(lambda x: x.sin().nonzero() * 2, X)
    plan = partitioned(method, all_but())
    assert "nonzero" in refusals(plan) and ["sin"] in taken(plan)


def test_another_backend_takes_what_the_first_one_cannot_compute() -> None:
    method = edge_of(lambda x: x.sin() + torch.arange(x.shape[0]).unsqueeze(1), X)
    first, second = Rule(lambda node: short(node) == "arange"), all_but()
    plan = partitioned(method, first, second)
    assert [found.backend for found in plan.partitions] == ["two"]
    assert "arange" in taken(plan)[0]


def test_a_group_that_cannot_have_its_sizes_is_refused_as_a_whole() -> None:
    method = edge_of(lambda x: (x.sin(), (torch.arange(x.shape[0]) * 2).cos()), X)

    class Pair(Rule):
        def check(self, call: Call) -> Verdict:
            answer = super().check(call)
            if short(call.node) != "mul":
                return answer
            return Verdict.yes(group=(call.node.all_input_nodes[0],))

    plan = partitioned(method, Pair(lambda node: short(node) in ("mul", "cos")))
    assert taken(plan) == [["cos"]] and set(refusals(plan)) == {"mul"}


@pytest.mark.parametrize("seed", range(3))
def test_plans_are_the_same_each_time(seed: int) -> None:
    function: Callable[[torch.Tensor], Any] = lambda x: (  # noqa: E731
        x.sin() + torch.arange(x.shape[0]).unsqueeze(1),
        torch.arange(x.shape[0]) + seed,
    )
    plans = [partitioned(edge_of(function, X), all_but("unsqueeze_copy")) for _ in range(2)]
    assert taken(plans[0]) == taken(plans[1]) and refusals(plans[0]) == refusals(plans[1])


def test_a_partition_of_the_users_own_without_the_size_is_refused() -> None:
    method = edge_of(lambda x: (x.sin(), torch.arange(x.shape[0]) * 2), X)
    rule = all_but()

    def counting(program: Any, ask: Any) -> Any:
        nodes = [node for node in program.graph.nodes if node.op == "call_function"]
        return [("one", [node for node in nodes if short(node) in ("arange", "mul")])]

    selection = Selection(["one"], partition=counting)
    with pytest.raises(LoweringError, match=r"(?s)does not take: aten\.arange.*is not a size of the part"):
        selection.partitioners(method, {"one": rule}, SIZES)
