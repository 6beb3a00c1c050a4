"""Partitions are convex, as large as they can be, ordered, and grown in near-linear time."""

from __future__ import annotations

import gc
import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from partitioning import Rule, check_plan
from torch.fx import Graph, Node

from delegatekit.edge import EdgeMethod
from delegatekit.lowering import partition_program
from delegatekit.partition import Partition, PartitionPlan, partition
from delegatekit_api import Call, PluginError, Verdict


def method_of(edges: dict[str, list[str]], outputs: list[str]) -> EdgeMethod:
    """A method whose nodes add up their inputs; "x" is the only input."""
    graph = Graph()
    value = torch.empty(2)
    nodes = {"x": graph.placeholder("x")}
    nodes["x"].meta["val"] = value
    for name, sources in edges.items():
        pair = [nodes[source] for source in sources]
        target = (
            torch.ops.aten.add.Tensor
            if len(pair) == 2
            else torch.ops.aten.cat.default
            if len(pair) > 2
            else torch.ops.aten.sin.default
        )
        nodes[name] = graph.create_node("call_function", target, (pair,) if len(pair) > 2 else tuple(pair), {}, name)
        nodes[name].meta["val"] = value
    results = tuple(nodes[name] for name in outputs)
    graph.output(results)
    return EdgeMethod("forward", graph, {}, {}, (nodes["x"],), results)


def names(plan: PartitionPlan) -> list[Any]:
    """The plan as nested lists of node names, fallback nodes as plain names."""
    return [step.name if isinstance(step, Node) else [node.name for node in step.nodes] for step in plan.steps]


def mergeable(method: EdgeMethod, plan: PartitionPlan) -> list[tuple[Partition, Partition]]:
    """Pairs of one backend that could be merged without a cycle, found by brute force."""
    home = {node: step for step in plan.steps for node in (step.nodes if isinstance(step, Partition) else (step,))}
    after: dict[Any, set[Any]] = {id(step): set() for step in plan.steps}
    for node, step in home.items():
        after[id(step)] |= {id(home[user]) for user in node.users if user in home and home[user] is not step}

    def reaches_through_another(source: Partition, target: Partition) -> bool:
        stack, seen = [step for step in after[id(source)] if step != id(target)], set()
        while stack:
            step = stack.pop()
            if step == id(target):
                return True
            if step not in seen:
                seen.add(step)
                stack.extend(after[step])
        return False

    return [
        (first, second)
        for first, second in itertools.combinations(plan.partitions, 2)
        if first.backend == second.backend
        and not reaches_through_another(first, second)
        and not reaches_through_another(second, first)
    ]


def test_a_whole_graph_becomes_one_partition() -> None:
    method = method_of({"a": ["x"], "b": ["a"], "c": ["a", "b"]}, ["c"])
    plan = partition(method, {"one": Rule(lambda node: True)})
    assert names(plan) == [["a", "b", "c"]]
    assert [node.name for node in plan.partitions[0].outputs] == ["c"]


def test_a_detour_through_fallback_splits_a_partition() -> None:
    method = method_of({"a": ["x"], "f": ["a"], "b": ["a", "f"]}, ["b"])
    plan = partition(method, {"one": Rule(lambda node: node.name != "f")})
    assert names(plan) == [["a"], "f", ["b"]]


def test_a_node_waits_for_fallback_that_its_user_needs() -> None:
    method = method_of({"a": ["x"], "f": ["x"], "b": ["a", "f"]}, ["b"])
    plan = partition(method, {"one": Rule(lambda node: node.name != "f")})
    assert names(plan) == ["f", ["a", "b"]]


def test_two_sets_that_feed_each_other_through_different_nodes_are_not_merged() -> None:
    # One backend's a -> b' and another's b -> a' would be a cycle of two delegates without any path a .. a'.
    edges = {"a1": ["x"], "b1": ["x"], "b2": ["a1"], "a2": ["b1"]}
    method = method_of(edges, ["a2", "b2"])
    plan = partition(method, {"a": Rule(lambda n: n.name[0] == "a"), "b": Rule(lambda n: n.name[0] == "b")})
    check_plan(method, plan)
    assert mergeable(method, plan) == []


def test_the_first_backend_that_takes_a_node_gets_it() -> None:
    method = method_of({"a": ["x"], "b": ["a"]}, ["b"])
    plan = partition(method, {"one": Rule(lambda n: n.name == "a"), "two": Rule(lambda n: True)})
    assert {node.name: backend for node, backend in plan.taker.items()} == {"a": "one", "b": "two"}


def test_passengers_alone_are_not_delegated() -> None:
    method = method_of({"a": ["x"], "b": ["a"]}, ["b"])
    assert names(partition(method, {"one": Rule(lambda n: True, lambda n: True)})) == ["a", "b"]
    assert names(partition(method, {"one": Rule(lambda n: True, lambda n: n.name == "a")})) == [["a", "b"]]


def test_nodes_between_those_of_a_group_keep_their_place() -> None:
    method = method_of({"a": ["x"], "b": ["x"], "c": ["a", "b"], "d": ["c"]}, ["d"])
    nodes = {node.name: node for node in method.graph.nodes}

    class Grouping(Rule):
        def check(self, call: Call) -> Verdict:
            node = call.node
            return Verdict.yes(group=(nodes["a"], nodes["c"])) if node.name in "ac" else super().check(call)

    plan = partition(method, {"one": Grouping(lambda node: True)})
    (only,) = plan.partitions
    assert [node.name for node in only.nodes] == ["a", "b", "c", "d"]


def test_a_backend_may_propose_its_own_partitions() -> None:
    method = method_of({"a": ["x"], "b": ["a"], "c": ["b"]}, ["c"])
    rule = Rule(lambda node: True)
    a, b, c = (node for node in method.graph.nodes if node.op == "call_function")
    rule.proposal = [[a], [b], [c]]
    assert names(partition(method, {"one": rule})) == [["a"], ["b"], ["c"]]


def test_a_proposal_that_depends_on_itself_is_refused() -> None:
    method = method_of({"a": ["x"], "f": ["a"], "b": ["f"]}, ["b"])
    rule = Rule(lambda node: node.name != "f")
    a, _, b = (node for node in method.graph.nodes if node.op == "call_function")
    rule.proposal = [[a, b]]
    with pytest.raises(PluginError, match=r"a proposed partition depends on itself through a node outside, .* \(f\)"):
        partition(method, {"one": rule})


def test_what_is_left_of_a_proposal_after_another_backend_took_a_node_is_grouped() -> None:
    method = method_of({"a": ["x"], "b": ["a"], "c": ["b"], "d": ["c"]}, ["d"])
    first, second = Rule(lambda node: node.name == "b"), Rule(lambda node: True)
    second.proposal = [[node for node in method.graph.nodes if node.op == "call_function"]]
    plan = partition(method, {"one": first, "two": second})
    check_plan(method, plan)
    assert names(plan) == [["a"], ["b"], ["c", "d"]]


def test_a_partitioner_that_raises_is_named_with_the_node() -> None:
    def fail(node: Node) -> bool:
        raise KeyError("oops")

    with pytest.raises(PluginError, match=r"backend one failed .*KeyError"):
        partition(method_of({"a": ["x"]}, ["a"]), {"one": Rule(fail)})


def test_a_partitioner_that_cannot_propose_is_named() -> None:
    rule = Rule(lambda node: True)
    rule.propose = lambda program: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(PluginError, match="backend one failed while proposing partitions: ZeroDivisionError"):
        partition(method_of({"a": ["x"]}, ["a"]), {"one": rule})


def test_an_answer_that_is_no_verdict_is_refused() -> None:
    rule = Rule(lambda node: True)
    rule.check = lambda call: True  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(PluginError, match="not a Verdict"):
        partition(method_of({"a": ["x"]}, ["a"]), {"one": rule})


def test_partitioning_changes_nothing_in_the_graph() -> None:
    method = random_method(random.Random(1), 30)
    before = [(node.name, node.args, dict(node.meta)) for node in method.graph.nodes]
    partition(method, {"one": Rule(lambda node: node.name[-1] in "02468")})
    assert [(node.name, node.args, dict(node.meta)) for node in method.graph.nodes] == before


def random_method(source: random.Random, count: int) -> EdgeMethod:
    edges: dict[str, list[str]] = {}
    known = ["x"]
    for index in range(count):
        name = f"n{index}"
        edges[name] = source.sample(known[-12:], min(len(known), source.randint(1, 3)))
        known.append(name)
    used = {argument for arguments in edges.values() for argument in arguments}
    return method_of(edges, [name for name in edges if name not in used])


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_get_convex_maximal_partitions(seed: int) -> None:
    source = random.Random(seed)
    method = random_method(source, source.randint(2, 60))
    share = source.random()
    takes = {node: source.random() < share for node in method.graph.nodes}
    second = {node: source.random() < 0.5 for node in method.graph.nodes}
    for partitioners in (
        {"one": Rule(lambda node: takes[node])},
        {"one": Rule(lambda node: takes[node]), "two": Rule(lambda node: second[node])},
    ):
        plan = partition(method, partitioners)
        check_plan(method, plan)
        assert mergeable(method, plan) == []


def test_partition_growth_is_near_linear() -> None:
    def seconds(count: int) -> float:
        edges = {"n0": ["x"]}
        for index in range(1, count):
            edges[f"n{index}"] = [f"n{index - 1}", f"n{max(0, index - 3)}"]
        method = method_of(edges, [f"n{count - 1}"])
        rule = Rule(lambda node: int(node.name[1:]) % 2 == 0)
        # Garbage collections walk the whole process, torch included: their cost depends on other loaded code.
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            plan = partition(method, {"one": rule})
            spent = time.process_time() - start
        finally:
            gc.enable()
        assert len(plan.partitions) == count // 2
        return spent

    small, large = min(seconds(1000) for _ in range(3)), min(seconds(8000) for _ in range(2))
    assert large < 8 * small * 4  # a quadratic pass would need 64 times as long


def test_a_partition_is_a_program_of_its_own() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(self.linear(x))

    from delegatekit.edge import build_edge

    model, x = Model(), torch.randn(2, 4)
    method = build_edge(torch.export.export(model, (x,)))
    plan = partition(method, {"one": Rule(lambda node: "linear" in node.name)})
    program = partition_program(method, plan.partitions[0])
    torch.testing.assert_close(program.exported_program.module()(x)[0], model.linear(x))
    assert {t.data_ptr() for t in program.view.constants.values()} == {p.data_ptr() for p in model.parameters()}
    assert [node.name for node in program.view.inputs] == ["x"]


class Grouping(Rule):
    """Takes the nodes that a function picks, some of them only in groups."""

    def __init__(self, takes: Callable[[Node], bool], groups: list[str], method: EdgeMethod) -> None:
        super().__init__(takes)
        nodes = {node.name: node for node in method.graph.nodes}
        self.groups = {nodes[name]: tuple(nodes[other] for other in group) for group in groups for name in group}

    def check(self, call: Call) -> Verdict:
        answer = super().check(call)
        return Verdict.yes(group=self.groups[call.node]) if answer.supported and call.node in self.groups else answer


def test_a_group_that_depends_on_itself_through_a_node_outside_is_refused_with_the_reason() -> None:
    method = method_of({"a": ["x"], "f": ["a"], "b": ["f"], "c": ["b"]}, ["c"])
    rule = Grouping(lambda node: node.name != "f", ["ab"], method)
    plan = partition(method, {"one": rule})
    check_plan(method, plan)
    assert names(plan) == ["a", "f", "b", ["c"]]
    reasons = {node.name: answers["one"].reason for node, answers in plan.verdicts.items() if answers}
    assert reasons["a"] == reasons["b"]
    assert reasons["a"] == "its group depends on itself through a node outside, aten.sin.default (f)"


def test_another_backend_is_asked_about_a_group_that_was_refused() -> None:
    method = method_of({"a": ["x"], "f": ["a"], "b": ["f"]}, ["b"])
    first, second = Grouping(lambda node: node.name != "f", ["ab"], method), Rule(lambda node: node.name == "b")
    plan = partition(method, {"one": first, "two": second})
    assert names(plan) == ["a", "f", ["b"]]
    assert plan.partitions[0].backend == "two"
    (a, _, b) = plan.verdicts
    assert not plan.verdicts[a]["two"].supported and plan.verdicts[b]["two"].supported


def test_of_two_groups_that_depend_on_each_other_one_is_refused() -> None:
    # a, d and c, b: each group alone can be a delegate, but not both.
    method = method_of({"a": ["x"], "c": ["x"], "b": ["a"], "d": ["c"], "e": ["b", "d"]}, ["e"])
    rule = Grouping(lambda node: node.name != "e", ["ad", "cb"], method)
    plan = partition(method, {"one": rule, "two": Rule(lambda node: False)})
    check_plan(method, plan)
    refused = sorted(node.name for node, answers in plan.verdicts.items() if "group" in answers["one"].reason)
    assert refused == ["a", "d"]
