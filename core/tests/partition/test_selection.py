"""`only`, `skip` and the user's own partition function."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import Node

import delegatekit
from delegatekit.cli.arguments import selectors
from delegatekit.cli.console import UsageError
from delegatekit_api import LoweringError
from delegatekit_api.nodes import operator_name

PLUGIN = """
from delegatekit_api import *

class Takes:
    def keep_operators(self): return ["aten.hardswish.default"]
    def check(self, call):
        node = call.node
        name = call.operator
        if name in {operators}:
            group = node.users if name == "aten.tan.default" else ()
            return Verdict.yes(passenger=name == "aten.view_copy.default", group=group)
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

#: The decomposition of a hardswish.
HARD = ["aten.add.Scalar", "aten.clamp.default", "aten.hardtanh.default", "aten.mul.Tensor", "aten.div.Scalar"]


@pytest.fixture(autouse=True)
def plugins(install_plugin: Any) -> None:
    for name, operators in (
        ("one", [f"aten.{name}.default" for name in ("sin", "cos", "linear", "view_copy", "tan", "hardswish")] + HARD),
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


@pytest.mark.parametrize("selector", ["layers", "module:layers", "*.*", "**", "layers.*", "**.[0-2]"])
def test_a_module_is_selected_with_all_that_is_inside(selector: str) -> None:
    """A ModuleList too, which is never called; a wildcard matches one part of a path, two any number."""
    assert set(takers(skip=[selector])) - {":view_copy"} == set()


def test_a_wildcard_does_not_reach_over_a_dot() -> None:
    assert set(takers(only=["layers.*.linear"])) == set(takers(only=["**.linear"]))
    with pytest.raises(LoweringError, match=r"only='\*\.linear' selects no operator"):
        takers(only=["*.linear"])


class Named(nn.Module):
    """A module with the name of an operator, which others call, too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = Block(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.linear(x))


def test_a_name_of_a_module_and_of_an_operator_must_say_which() -> None:
    def left(selector: str) -> list[tuple[str, str]]:
        rows = delegatekit.explain(Named(), X, backends=["one"], skip=[selector]).rows
        return [(row.module, row.operator) for row in rows if row.backend is None]

    with pytest.raises(LoweringError, match=r"(?s)skip='linear' is the name of .*'operator:linear' or 'module:linear'"):
        left("linear")
    assert {module for module, _ in left("module:linear")} == {"linear", "linear.linear"}
    assert left("operator:linear") == [(name, "aten.linear.default") for name in ("linear.linear", "other")]


class Hard(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.hardswish(x) * torch.sin(x)


def test_a_skipped_operator_does_not_come_back_in_pieces() -> None:
    """The backend keeps hardswish whole; skipped it is decomposed, and the pieces are still the user's hardswish."""
    report = delegatekit.report(delegatekit.lower(Hard(), X, backends=["one"])).methods[0]
    assert report.delegated_nodes == 3
    report = delegatekit.report(delegatekit.lower(Hard(), X, backends=["one"], skip=["hardswish"])).methods[0]
    assert report.delegated_nodes == 2 and report.fallback_calls > 1
    report = delegatekit.report(delegatekit.lower(Hard(), X, backends=["one"], skip=["mul"])).methods[0]
    assert report.delegated_nodes == 2 and "aten::mul.out" in report.fallback


def test_a_group_that_holds_a_skipped_node_is_left() -> None:
    class Group(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cos(torch.tan(x))

    assert all(row.backend == "one" for row in delegatekit.explain(Group(), X, backends=["one"]).rows)
    tan, cos = delegatekit.explain(Group(), X, backends=["one"], skip=["cos"]).rows
    assert tan.backend is None and cos.backend is None
    assert re.search(r"together with aten\.cos.*left out by skip='cos'", tan.reasons["one"])


def test_a_function_of_a_node_is_called_once_for_each() -> None:
    seen: list[Node] = []

    def last(node: Node) -> bool:
        seen.append(node)
        return len(seen) == 9

    delegatekit.explain(Model(), X, backends=["one", "two"], skip=[last])
    assert len(seen) == len(set(seen)) > 9


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
        ({"skip": "layers.1"}, r"is not a list\n.*skip=\['layers\.1'\]"),
        ({"skip": [3]}, "skip holds 3"),
        ({"skip": ["modul:layers"]}, r"(?s)skip holds 'modul:layers'.*operator: or module:"),
        ({"skip": ["operator:layers"]}, "skip='operator:layers' selects no operator"),
        ({"only": ["module:layer.0"]}, r"did you mean layers\.0"),
        ({"skip": {"three": ["sin"]}}, "three, which is not among the backends"),
        ({"skip": [lambda node: node.nothing]}, r"aten\..*selector .* failed: AttributeError"),
        (
            {"skip": [lambda node: node.name == "linear" or node.nothing]},
            r"aten\..*selector .* failed: AttributeError",
        ),
    ],
)
def test_a_selection_that_can_mean_nothing_is_refused(selection: dict[str, Any], message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        delegatekit.lower(Model(), X, backends=["one"], **selection)


def calls(program: Any, *names: str) -> list[Node]:
    return [node for node in program.graph.nodes if node.op == "call_function" and operator_name(node) in names]


def delegates(partition: Any, backends: list[str] | None = None) -> list[tuple[str, int]]:
    report = delegatekit.report(delegatekit.lower(Model(), X, backends=backends or ["one", "two"], partition=partition))
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
        (lambda p, ask: [("one", ["sin"])], "'sin', which is not an operator"),
        (lambda p, ask: ["sin"], "returned 'sin', not a pair"),
    ],
    ids=["not taken", "stranger", "twice", "circle", "no node", "no pair"],
)
def test_what_the_function_returns_is_checked(result: Any, message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        delegates(result)


def test_partitions_that_need_each_other_are_refused() -> None:
    """Each could be a delegate alone, but not both: one would have to run before and after the other."""

    class Cross(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.cos(torch.sin(x)), torch.sin(torch.cos(x + 1))

    def crossed(program: Any, ask: Any) -> Iterable[tuple[str, list[Node]]]:
        (a1, a2), (b1, b2) = calls(program, "aten.sin.default"), calls(program, "aten.cos.default")
        yield "one", [a1, a2]
        yield "one", [b1, b2]

    with pytest.raises(
        LoweringError, match=r"(?s)depends on itself through aten\.\w+\..* at .*test_selection\.py.*begin"
    ):
        delegatekit.lower(Cross(), X, backends=["one"], partition=crossed)


def test_a_partition_may_not_tear_apart_what_belongs_together() -> None:
    class Group(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.cos(torch.tan(x)), x.topk(2)[1]

    def refused(*names: str) -> str:
        def torn(program: Any, ask: Any) -> Iterable[tuple[str, list[Node]]]:
            yield "one" if names[0] != "getitem" else "two", calls(program, *names)

        with pytest.raises(LoweringError) as error:
            delegatekit.lower(Group(), X, backends=["one", "two"], partition=torn)
        return str(error.value)

    assert re.search(r"gives one aten\.tan.* without aten\.cos.*, which goes with it", refused("aten.tan.default"))
    assert re.search(r"gives two getitem.* without aten\.topk", refused("getitem"))


def test_the_function_is_told_what_a_backend_cannot_do() -> None:
    """Changing sizes are not given to a backend without that ability, whatever its table says."""
    answers = []

    def asking(program: Any, ask: Any) -> Iterable[tuple[str, list[Node]]]:
        answers.extend(ask("one", node) for node in program.graph.nodes if node.op == "call_function")
        yield "one", calls(program, "aten.sin.default")

    with pytest.raises(LoweringError, match=r"(?s)gives one a node .*aten\.sin.*static shapes only"):
        rows = {0: torch.export.Dim("rows", min=2, max=9)}
        delegatekit.lower(Block(), X, backends=["one"], partition=asking, dynamic_shapes=(rows,))
    assert answers and all("sizes that change" in answer.reason for answer in answers)


def test_explain_tells_a_backends_own_reason_before_the_functions() -> None:
    rows = delegatekit.explain(Model(), X, backends=["one"], partition=lambda program, ask: []).rows
    reasons = {row.operator: row.reasons["one"] for row in rows}
    assert reasons["aten.exp.default"] == "one: no kernel"
    assert reasons["aten.sin.default"] == "the partition function does not give it this operator"


def test_the_function_works_with_a_selection() -> None:
    def greedy(program: Any, ask: Any) -> Iterable[tuple[str, list[Node]]]:
        return [
            ("one", [node]) for node in program.graph.nodes if node.op == "call_function" and ask("one", node).supported
        ]

    everything = delegatekit.report(delegatekit.lower(Model(), X, backends=["one"], partition=greedy)).methods[0]
    some = delegatekit.report(
        delegatekit.lower(Model(), X, backends=["one"], partition=greedy, only=["layers.1"])
    ).methods[0]
    assert len(everything.delegates) > 9 and len(some.delegates) == 3


def test_results_of_an_operator_belong_to_it() -> None:
    class Top(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            values, indices = x.topk(2)
            return values.sin(), indices

    def together(program: Any, ask: Any) -> Iterable[tuple[str, list[Node]]]:
        yield "two", calls(program, "aten.topk.default", "aten.sin.default")

    program = delegatekit.lower(Top(), X, backends=["two"], partition=together)
    assert [delegate.nodes for delegate in delegatekit.report(program).methods[0].delegates] == [2]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], None),
        (["layers.0", "aten.sin"], ["layers.0", "aten.sin"]),
        (["one=layers.0", "aten.sin"], {"one": ["layers.0", "aten.sin"], "two": ["aten.sin"]}),
    ],
)
def test_the_command_line_takes_selectors_for_one_backend_or_all(arguments: list[str], found: Any) -> None:
    assert selectors(arguments, ["one", "two"]) == found


def test_the_command_line_refuses_selectors_for_a_stranger() -> None:
    with pytest.raises(UsageError, match="'three', which is not among the backends one, two"):
        selectors(["three=layers.0"], ["one", "two"])
