"""Facts about nodes and programs that backends read: names, source locations, constants."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import Graph

from delegatekit_api import ProgramView
from delegatekit_api.nodes import describe_node, operator_name, source_line

aten = torch.ops.aten


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)  # the line to be found


class Model(nn.Module):
    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), Inner()])
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("table", torch.arange(4.0))
        self.register_buffer("scratch", torch.ones(4), persistent=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, int]:
        self.count.add_(1)
        for layer in self.layers:
            x = layer(x)
        return x * y + self.table * self.scratch + torch.tensor([1.0, 2.0, 3.0, 4.0]) + self.count, 3


@pytest.fixture(scope="module")
def model() -> Model:
    return Model().eval()


@pytest.fixture(scope="module")
def program(model: Model) -> torch.export.ExportedProgram:
    exported = torch.export.export(model, (torch.ones(2, 4), torch.ones(2, 4)), strict=False)
    return exported.run_decompositions({})  # functionalizes, which finds the buffers that are written


def find(program: torch.export.ExportedProgram, name: str) -> Any:
    return next(node for node in program.graph.nodes if operator_name(node) == name)


def test_operators_have_the_names_of_their_overloads() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    split = graph.call_function(aten.split.Tensor, (x, 2))
    item = graph.call_function(operator.getitem, (split, 0))
    branch = graph.call_function(torch.ops.higher_order.cond, (item, None, None, ()))
    output = graph.output((branch,))
    names = [operator_name(node) for node in (x, split, item, branch, output)]
    assert names == ["placeholder", "aten.split.Tensor", "getitem", "cond", "output"]


def test_a_node_is_described_with_its_module_and_source_line(program: torch.export.ExportedProgram) -> None:
    text = describe_node(find(program, "aten.sin.default"))
    assert text.startswith("aten.sin.default (sin) in layers.1 at ")
    assert "test_program.py:" in text
    assert text.endswith(": `return torch.sin(x)  # the line to be found`")


def test_a_line_of_the_user_is_preferred_to_one_inside_torch(program: torch.export.ExportedProgram) -> None:
    # nn.Linear.forward is torch's code; the call of the layer is the user's.
    assert (source_line(find(program, "aten.linear.default")) or "").endswith(": `x = layer(x)`")


def test_a_node_that_nobody_recorded_has_a_name_only() -> None:
    node = Graph().placeholder("x")
    assert source_line(node) is None
    assert describe_node(node) == "placeholder (x)"


USER = '  File "model.py", line 12, in forward\n    x = a + b\n'
BARE = '  File "model.py", line 12, in forward\n'
INNER = '  File "block.py", line 7, in forward\n    return a * b\n'
TORCH = '  File "/lib/python3/site-packages/torch/nn/modules/linear.py", line 134, in forward\n    return F.linear()\n'
GENERATED = '  File "<eval_with_key>.3", line 9, in forward\n'


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (USER, "model.py:12: `x = a + b`"),
        (USER + INNER, "block.py:7: `return a * b`"),
        (USER + TORCH, "model.py:12: `x = a + b`"),
        (TORCH, "/lib/python3/site-packages/torch/nn/modules/linear.py:134: `return F.linear()`"),
        (BARE, "model.py:12"),
        (GENERATED, "<eval_with_key>.3:9"),
        # A frame without source text (generated code) takes one line, not two.
        (GENERATED + USER, "model.py:12: `x = a + b`"),
        (BARE + INNER, "block.py:7: `return a * b`"),
        (INNER + BARE, "model.py:12"),
        (USER + "    ~~^~~\n" + TORCH, "model.py:12: `x = a + b`"),
        ("no frames at all", None),
        ("", None),
    ],
)
def test_the_users_innermost_line_is_found_in_any_trace(trace: str, expected: str | None) -> None:
    node = Graph().placeholder("x")
    node.meta["stack_trace"] = trace
    assert source_line(node) == expected


def test_a_view_tells_inputs_constants_and_mutable_buffers_apart(
    program: torch.export.ExportedProgram, model: Model
) -> None:
    view = ProgramView.of(program, "encode")
    assert view.method == "encode"
    assert [node.name for node in view.inputs] == ["x", "y"]
    names = {node.name: tensor for node, tensor in view.constants.items()}
    assert {name for name in names if "count" in name} == set()
    assert names["p_layers_0_weight"].data_ptr() == model.layers[0].weight.data_ptr()  # type: ignore[union-attr]
    assert torch.equal(names["b_table"], model.table)
    lifted = [tensor.tolist() for name, tensor in names.items() if name.startswith("c_")]
    assert [1.0, 2.0, 3.0, 4.0] in lifted
    assert any("scratch" in name for name in names)


def test_a_view_gives_a_constants_own_storage(program: torch.export.ExportedProgram, model: Model) -> None:
    view = ProgramView.of(program)
    weight = next(node for node in view.graph.nodes if node.name == "p_layers_0_weight")
    assert view.is_constant(weight)
    found = view.constant(weight)
    assert found is not None
    assert found.data_ptr() == model.layers[0].weight.data_ptr()  # type: ignore[union-attr]


def test_what_is_no_constant_has_no_value(program: torch.export.ExportedProgram) -> None:
    view = ProgramView.of(program)
    for item in (view.inputs[0], find(program, "aten.sin.default"), 3, None):
        assert view.constant(item) is None
        assert not view.is_constant(item)


def test_an_output_that_is_no_node_has_no_place(program: torch.export.ExportedProgram) -> None:
    outputs = ProgramView.of(program).outputs
    assert outputs[-1] is None
    assert all(node is not None for node in outputs[:-1])
