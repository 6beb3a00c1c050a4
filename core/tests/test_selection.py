"""`only`, `skip` and the user's own partition function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import Node

import delegatekit
from delegatekit_api import LoweringError, operator_name

PLUGIN = """
from delegatekit_api import *

class Takes:
    def keep_operators(self): return ()
    def check(self, node, program):
        name = operator_name(node)
        if name in {operators}:
            return Verdict.yes(passenger=name == "aten.view_copy.default")
        return Verdict.no(f"{name}: no kernel")
    def propose(self, program): return None

@hookimpl
def describe_backend():
    return BackendDescription("{name}", "{name}Backend", "delegatekit-{name}", "1.2", "a test backend")

@hookimpl
def create_partitioner(options): return Takes()

@hookimpl
def preprocess(partition, options): return PreprocessResult(b"blob")
"""


@pytest.fixture(autouse=True)
def plugins(install_plugin: Any) -> None:
    for name, operators in (
        ("one", ["aten.sin.default", "aten.cos.default", "aten.linear.default", "aten.view_copy.default"]),
        ("two", ["aten.sin.default", "aten.topk.default"]),
    ):
        source = PLUGIN.replace("{operators}", repr(tuple(operators))).replace("{name}", name)
        install_plugin(name, source)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cos(self.linear(torch.sin(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return torch.exp(x).view(-1)


X = (torch.randn(2, 4),)


def takers(**selection: Any) -> dict[str, str]:
    """Module and operator of each delegated node -> its backend."""
    rows = delegatekit.explain(Model(), X, backends=selection.pop("backends", ["one"]), **selection).rows
    return {f"{row.module}:{row.operator.split('.')[1]}": row.backend for row in rows if row.backend}


ALL = {f"layers.{i}{operator}" for i in range(3) for operator in (":sin", ".linear:linear", ":cos")}


def test_without_a_selection_a_backend_takes_all_it_can() -> None:
    assert set(takers()) == {*ALL, ":view_copy"} or set(takers()) == ALL


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("layers.1", {item for item in ALL if item.startswith("layers.1")}),
        ("layers.*.linear", {item for item in ALL if ".linear:" in item}),
        ("aten.sin.default", {item for item in ALL if item.endswith(":sin")}),
        ("aten.cos", {item for item in ALL if item.endswith(":cos")}),
        ("linear", {item for item in ALL if item.endswith(":linear")}),
        (lambda node: operator_name(node) == "aten.sin.default", {item for item in ALL if item.endswith(":sin")}),
    ],
    ids=["module", "glob", "overload", "packet", "name", "predicate"],
)
def test_only_and_skip_are_each_others_complement(selector: Any, selected: set[str]) -> None:
    assert set(takers(only=[selector])) == selected
    assert set(takers(skip=[selector])) - {":view_copy"} == ALL - selected


def test_a_selection_may_be_made_for_each_backend() -> None:
    found = takers(backends=["one", "two"], skip={"one": ["layers.0"]})
    assert found["layers.0:sin"] == "two" and found["layers.1:sin"] == "one"


def test_explain_gives_the_selection_as_the_reason() -> None:
    rows = delegatekit.explain(Model(), X, backends=["one"], skip=["layers.2"]).rows
    (row,) = [row for row in rows if row.module == "layers.2" and "sin" in row.operator]
    assert row.reasons["one"] == "left out by skip='layers.2'"
    rows = delegatekit.explain(Model(), X, backends=["one"], only=["layers.2", "cos"]).rows
    (row,) = [row for row in rows if row.module == "layers.0" and "sin" in row.operator]
    assert row.reasons["one"] == "left out: only='layers.2', 'cos'"


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"skip": ["layer.1"]}, r"(?s)skip='layer\.1' selects no operator.*did you mean layers\.1"),
        ({"only": ["aten.sinus"]}, r"(?s)only='aten\.sinus' selects no.*aten\.sin\.default"),
        ({"only": [lambda node: False]}, "selects no operator"),
        ({"skip": "layers.1"}, r"is no list\n.*skip=\['layers\.1'\]"),
        ({"skip": [3]}, "skip holds 3"),
        ({"skip": {"three": ["sin"]}}, "three, which is not among the backends"),
        ({"skip": [lambda node: node.nothing]}, r"aten\..*selector .* failed: AttributeError"),
    ],
)
def test_a_selection_that_can_mean_nothing_is_refused(selection: dict[str, Any], message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        delegatekit.lower(Model(), X, backends=["one"], **selection)


def calls(program: Any, *names: str) -> list[Node]:
    return [node for node in program.graph.nodes if node.op == "call_function" and operator_name(node) in names]


def delegates(partition: Any, backends: list[str] | None = None) -> list[tuple[str, int]]:
    report = delegatekit.lower(Model(), X, backends=backends or ["one", "two"], partition=partition).report()
    return [(delegate.backend, delegate.nodes) for delegate in report.methods[0].delegates]


def test_a_function_of_the_users_own_forms_the_partitions() -> None:
    def by_layer(program: Any, ask: Any) -> Iterable[tuple[str, list[Node]]]:
        sines, cosines = calls(program, "aten.sin.default"), calls(program, "aten.cos.default")
        linears = calls(program, "aten.linear.default")
        yield "two", [sines[0]]
        yield "one", [linears[0], cosines[0], sines[1]]
        yield "one", calls(program, "aten.view_copy.default")  # a passenger alone, as the user wants it

    assert delegates(by_layer) == [("two", 1), ("one", 3), ("one", 1)]


def test_the_function_may_ask_the_backends() -> None:
    def greedy(program: Any, ask: Any) -> Iterable[tuple[str, list[Node]]]:
        for node in program.graph.nodes:
            if node.op == "call_function" and ask("two", node).supported:
                yield "two", [node]

    assert delegates(greedy) == [("two", 1)] * 3


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda p, ask: [("two", calls(p, "aten.cos.default")[:1])], r"(?s)gives two a node .*aten\.cos.*no kernel"),
        (lambda p, ask: [("three", calls(p, "aten.cos.default"))], "'three' is not among the backends"),
        (lambda p, ask: [("one", calls(p, "aten.cos.default")[:1] * 2)], r"a node twice: aten\.cos"),
        (
            lambda p, ask: [("one", [*calls(p, "aten.sin.default")[:1], *calls(p, "aten.cos.default")[:1]])],
            r"depends on itself through aten\.linear\.default .*layers\.0\.linear",
        ),
        (lambda p, ask: [("one", ["sin"])], "'sin', which is no operator"),
    ],
    ids=["not taken", "stranger", "twice", "circle", "no node"],
)
def test_what_the_function_returns_is_checked(result: Any, message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        delegates(result)


def test_results_of_an_operator_belong_to_it() -> None:
    class Top(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            values, indices = x.topk(2)
            return values.sin(), indices

    def together(program: Any, ask: Any) -> Iterable[tuple[str, list[Node]]]:
        yield "two", calls(program, "aten.topk.default", "aten.sin.default")

    program = delegatekit.lower(Top(), X, backends=["two"], partition=together)
    assert [delegate.nodes for delegate in program.report().methods[0].delegates] == [4]
