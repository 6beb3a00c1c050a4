"""The main query about the stock runtime: whether it can run a node, and if not, why."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.export import Dim

from delegatekit.edge import build_edge
from delegatekit.edge.sizes import is_size_node
from delegatekit.fallback import kernel_of, refusal, require_kernel
from delegatekit.pte.kernels import NUMBERS, PRIMITIVE_OF, runtime_operators
from delegatekit_api import UnsupportedError
from delegatekit_api.nodes import operator_name


def nodes_of(function: Any, *inputs: torch.Tensor, **more: Any) -> dict[str, Any]:
    class Model(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> Any:
            return function(*given)

    edge = build_edge(torch.export.export(Model(), inputs, **more))
    return {operator_name(node): node for node in edge.graph.nodes if node.op == "call_function"}


def test_a_node_with_a_kernel_is_not_refused() -> None:
    (node,) = nodes_of(torch.sin, torch.ones(2)).values()
    assert refusal(node) is None
    kernel = kernel_of(node)
    assert kernel is not None and kernel.full_name == "aten::sin.out"


def test_a_node_without_a_kernel_is_refused() -> None:
    node = nodes_of(torch.linalg.inv, torch.eye(2))["aten.linalg_inv_ex.default"]
    assert refusal(node) == "the runtime has no kernel for it"
    with pytest.raises(UnsupportedError, match=r"no chosen backend takes aten\.linalg_inv_ex.*has no kernel for it"):
        require_kernel(node)


def test_a_kernel_that_is_wrong_for_a_case_is_refused_with_what_it_does() -> None:
    (node,) = nodes_of(torch.sign, torch.ones(2)).values()
    assert kernel_of(node) is None
    assert refusal(node) == "the runtime's sign of NaN is NaN, not 0"
    (node,) = nodes_of(torch.sign, torch.ones(2, dtype=torch.int32)).values()
    assert refusal(node) is None


def test_sizes_control_flow_and_results_need_no_kernel() -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), x.new_full((x.shape[0] * 2,), 1.0)

    shapes = {"given": ({0: Dim("n", max=9)},)}
    nodes = nodes_of(function, torch.ones(4), dynamic_shapes=shapes)
    assert "cond" in nodes and "getitem" in nodes and any(map(is_size_node, nodes.values()))
    assert [name for name, node in nodes.items() if refusal(node) is not None] == []


def test_primitives_are_kernels_of_the_runtime_and_compute_what_graphs_of_sizes_ask_for() -> None:
    assert set(NUMBERS) <= runtime_operators()
    for function, name in PRIMITIVE_OF.items():
        computed = NUMBERS[f"executorch_prim::{name}"]
        numbers = (2.5,) if function in (math.trunc, math.ceil, round, torch.sym_float) else (7, 3)
        numbers = (True,) if function is torch.sym_not else numbers
        assert computed(*numbers) == function(*numbers)
