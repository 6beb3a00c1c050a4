"""Debug handles: from an instruction and from inside a delegate back to the user's lines."""

from __future__ import annotations

import json
from typing import Any

import torch
from referee import StockProgram, same
from torch import nn

import delegatekit
from delegatekit.pte import read


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x).cumsum(0)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 4)
        self.head = Head()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.stem(x))
        return torch.cond(hidden.sum() > 0, self.head, lambda h: self.head(h) * 2, (hidden,))


X = torch.randn(5, 3)


def lowered(backends: list[str], **options: Any) -> delegatekit.LoweredProgram:
    return delegatekit.lower(torch.export.export(Model().eval(), (X,), strict=False), backends=backends, **options)


def operators(entry: dict[str, Any], handles: list[int]) -> set[str]:
    return {operator for handle in handles for operator in entry["nodes"][str(handle)]["operators"]}


def test_every_instruction_leads_to_the_nodes_that_it_computes() -> None:
    found = lowered([]).debug_map()["forward"]
    computed = {i["calls"]: operators(found, i["handles"]) for i in found["instructions"]}
    assert "aten.cumsum.default" in computed["aten::cumsum.out"]
    assert "aten.linear.default" in computed["aten::linear.out"]
    by_operator = {operator: node for node in found["nodes"].values() for operator in node["operators"]}
    assert by_operator["aten.cumsum.default"]["source"].count("torch.cond") == 1
    assert "test_handles.py" in by_operator["aten.relu.default"]["source"]
    linears = [node["module"] for node in found["nodes"].values() if "aten.linear.default" in node["operators"]]
    assert linears[:1] == ["stem"]
    json.dumps(found)


def test_the_operators_inside_a_delegate_lead_to_the_nodes() -> None:
    found = lowered(["xnnpack"]).debug_map()["forward"]
    calls = [i for i in found["instructions"] if i["calls"].startswith("delegate")]
    assert len(calls) == len(found["delegates"]) > 1
    for call, delegate in zip(calls, found["delegates"], strict=True):
        inside = {handle for handles in delegate["operators"].values() for handle in handles}
        assert inside and inside <= set(call["handles"])


def test_handles_do_not_depend_on_backends() -> None:
    def linears(program: delegatekit.LoweredProgram) -> list[str]:
        nodes = program.debug_map()["forward"]["nodes"]
        return [handle for handle, node in nodes.items() if "aten.linear.default" in node["operators"]]

    assert linears(lowered([])) == linears(lowered(["xnnpack"])) == linears(lowered([]))


def test_the_file_can_carry_stack_traces() -> None:
    program = lowered(["xnnpack"], stack_traces=True)
    (plan,) = read(program.buffer).program.execution_plan or ()
    (chain,) = plan.chains or ()
    assert len(chain.stacktrace or ()) == len(chain.instructions or ())
    places = {(frame.filename, frame.name) for frames in chain.stacktrace or () for frame in frames.items or ()}
    assert (__file__, "forward") in places
    same(StockProgram(program.buffer).method()((X,)), delegatekit.load(program.buffer)["forward"](X))
    assert all(
        not chain.stacktrace
        for plan in read(lowered([]).buffer).program.execution_plan or ()
        for chain in plan.chains or ()
    )
