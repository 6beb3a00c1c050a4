"""Changing sizes: known facts about them, their bounds, and the nodes that compute them."""

from __future__ import annotations

import operator
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import Dim
from torch.fx import Graph, Node

from delegatekit.edge import build_edge
from delegatekit.edge.rules import RULES, Family
from delegatekit.edge.size_nodes import _FUNCTIONS, SizeNodes
from delegatekit.edge.sizes import (
    is_size_node,
    known_true,
    same,
    same_shape,
    upper_bound,
    upper_shape,
)
from delegatekit.pte.kernels import PRIMITIVE_OF
from delegatekit_api import LoweringError, UnsupportedError


class Two(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y.sum()


@cache
def inputs() -> tuple[Node, Node]:
    """Placeholders of shape (n, 3) and (m, 5)."""
    shapes = {"x": {0: Dim("n", min=2, max=9)}, "y": {0: Dim("m", min=2, max=7)}}
    program = torch.export.export(Two(), (torch.zeros(4, 3), torch.zeros(6, 5)), dynamic_shapes=shapes)
    x, y = (node for node in program.graph.nodes if node.op == "placeholder")
    return x, y


class Written(SizeNodes):
    """Size nodes in a graph whose placeholders are x and y."""

    def __init__(self, *sources: Node) -> None:
        self.graph = Graph()
        super().__init__(self._write)
        for source in sources:
            node = self.graph.placeholder(source.name)
            node.meta["val"] = source.meta["val"]
            self.offer(node)

    def _write(self, target: Any, args: Any, value: Any) -> Node:
        node = self.graph.create_node("call_function", target, args)
        node.meta["val"] = value
        return node

    def evaluate(self, node: Any, **tensors: torch.Tensor) -> Any:
        if not isinstance(node, Node):
            return node
        self.graph.output(node)
        return torch.fx.Interpreter(torch.fx.GraphModule({}, self.graph)).run(*tensors.values())


OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": torch.sym_max,
    "min": torch.sym_min,
}


def terms() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from(["n", "m"]) | st.integers(1, 5)

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        whole = st.tuples(st.sampled_from(["add", "sub", "mul", "max", "min"]), inner, inner)
        # PyTorch divides symbolic sizes by positive numbers.
        return whole | st.tuples(st.sampled_from(["floordiv", "mod"]), inner, st.integers(1, 5))

    return st.recursive(leaves, grow, max_leaves=6)


def value_of(term: Any, n: Any, m: Any) -> Any:
    if isinstance(term, tuple):
        return OPERATORS[term[0]](*(value_of(item, n, m) for item in term[1:]))
    return {"n": n, "m": m}.get(term, term)


@settings(max_examples=150, deadline=None)
@given(terms(), st.integers(2, 9), st.integers(2, 7))
def test_the_nodes_compute_what_the_expression_says(term: Any, n: int, m: int) -> None:
    x, y = inputs()
    symbolic = value_of(term, x.meta["val"].shape[0], y.meta["val"].shape[0])
    written = Written(x, y)
    found = written.evaluate(written.node(symbolic), x=torch.zeros(n, 3), y=torch.zeros(m, 5))
    assert found == value_of(term, n, m)
    bound = upper_bound(symbolic)
    assert bound is not None and bound >= found


def test_a_size_is_solved_for_where_an_input_has_a_multiple_of_it() -> None:
    half = Dim("half", min=2, max=8)
    program = torch.export.export(
        Two(), (torch.zeros(6, 3), torch.zeros(6, 5)), dynamic_shapes={"x": {0: 2 * half}, "y": None}
    )
    x = next(node for node in program.graph.nodes if node.op == "placeholder")
    written = Written(x)
    assert written.evaluate(written.node(x.meta["val"].shape[0] // 2 + 1), x=torch.zeros(10, 3), y=None) == 6


def test_a_size_that_no_input_has_cannot_be_computed() -> None:
    x, y = inputs()
    written = Written(x)
    assert written.can(x.meta["val"].shape[0] + 1) and not written.can(y.meta["val"].shape[0])
    with pytest.raises(LoweringError, match="not a size of any input"):
        written.node(y.meta["val"].shape[0] * 2)


def test_each_expression_is_computed_once() -> None:
    x, y = inputs()
    written = Written(x, y)
    total = x.meta["val"].shape[0] + y.meta["val"].shape[0]
    assert written.node(total) is written.node(total) is written.node(y.meta["val"].shape[0] + x.meta["val"].shape[0])


def test_what_is_known_holds_for_every_call_not_for_the_example() -> None:
    x, y = inputs()
    n, m = x.meta["val"].shape[0], y.meta["val"].shape[0]  # 4 and 6 in the example
    assert same(n, n) and same(n * 2, n + n) and not same(n, 4) and not same(n, m)
    assert same_shape((n, 3), (n, 3)) and not same_shape((n, 3), (4, 3)) and not same_shape((n,), (n, 1))
    assert known_true(n >= 2) and known_true(n + m <= 16) and not known_true(n < m)


def test_bounds() -> None:
    x, y = inputs()
    n, m = x.meta["val"].shape[0], y.meta["val"].shape[0]
    # PyTorch assumes that m is at least 2, whatever it was exported for.
    assert upper_shape((n, 3, n * m, n - m + 7), "here") == (9, 3, 63, 16)
    free = torch.export.export(
        Two(), (torch.zeros(4, 3), torch.zeros(6, 5)), dynamic_shapes={"x": {0: Dim("n")}, "y": None}
    )
    size = next(iter(free.graph.nodes)).meta["val"].shape[0]
    assert upper_bound(size) is None
    with pytest.raises(UnsupportedError, match=r"(?s)here.*upper bound.*max="):
        upper_shape((size,), "here")


def test_sizes_depend_on_inputs_only_and_nobody_needs_unused_ones() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.sin().cos()
            return y.view(y.shape[0] * 3) + 0 * y.shape[0]

    program = torch.export.export(Model(), (torch.zeros(4, 3),), dynamic_shapes={"x": {0: Dim("n", max=9)}})
    graph = build_edge(program).graph
    sizes = [node for node in graph.nodes if is_size_node(node)]
    assert str(sizes[0].target) == "aten.sym_size.int"
    assert all(argument.op == "placeholder" or argument in sizes for node in sizes for argument in node.all_input_nodes)
    assert all(node.users for node in sizes)


def test_a_lowering_that_would_fix_a_size_is_refused_with_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family("careless")

    @family.rule(torch.ops.aten.sin.default)
    def careless(b: Any, call: Any) -> Any:
        return call["self"] if b.shape(call["self"])[0] == 4 else NotImplemented

    monkeypatch.setattr("delegatekit.edge.build.RULES", RULES.extended(family))

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

    program = torch.export.export(Model(), (torch.zeros(4, 3),), dynamic_shapes={"x": {0: Dim("n", max=9)}})
    with pytest.raises(UnsupportedError, match=r"aten\.sin.*depends on a size that changes"):
        build_edge(program)


def test_the_page_lists_all_functions_on_sizes() -> None:
    text = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text("utf-8")
    table = text[text.index("| function | of |") :].partition("\n\n")[0]
    listed = {name for row in table.splitlines()[2:] for name in re.findall(r"`([\w.]+)", row.split("|")[1])}
    modules = {"_operator": "operator.", "math": "math.", "torch": "torch.", "builtins": ""}
    known = {modules[function.__module__] + function.__name__ for function in PRIMITIVE_OF}
    assert listed == {*known, "aten.sym_size.int"}
    assert set(_FUNCTIONS.values()) <= set(PRIMITIVE_OF)
