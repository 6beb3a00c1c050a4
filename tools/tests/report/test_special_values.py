"""Special values in the report of a lowering: told by backend and operator, and only where a backend declares some."""

from __future__ import annotations

import torch

import delegatekit


class Model(torch.nn.Module):
    """Operators of which XNNPACK declares one, two or no special values."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.maximum(x, y) + torch.maximum(x, -y), torch.exp(x), x * y


INPUTS = (torch.randn(2, 3), torch.randn(2, 3))


def test_declared_ones_are_told_with_their_operators() -> None:
    report = delegatekit.report(delegatekit.lower(Model(), INPUTS, backends=["xnnpack"]))
    told = report.special_values["xnnpack"]
    assert told["the maximum of NaN and a number is the number"] == {"aten.maximum.default": 2}
    assert told["exp(NaN) is 0, and exp(x) infinite from 88.38 on"] == {"aten.exp.default": 1}
    assert "aten.mul.Tensor" not in {name for counts in told.values() for name in counts}
    text = str(report)
    assert "xnnpack gives other results than PyTorch for special values:" in text
    assert "  aten.maximum.default x2: the maximum of NaN and a number is the number" in text


def test_a_declaration_for_all_operators_is_one_line() -> None:
    text = str(delegatekit.report(delegatekit.lower(Model(), INPUTS, backends=["qnn"])))
    (line,) = [line for line in text.splitlines() if "no infinity" in line]
    assert "aten.maximum.default x2" in line and "more: the processor computes in float16" in line


def test_nothing_is_told_where_nothing_differs() -> None:
    report = delegatekit.report(delegatekit.lower(Model(), INPUTS, backends=["reference"]))
    assert not report.special_values and "special values" not in str(report)
    inexact = {"xnnpack": {"exact_special_values": True}}
    report = delegatekit.report(delegatekit.lower(Model(), INPUTS, backends=["xnnpack"], options=inexact))
    assert not report.special_values


class Chosen(torch.nn.Module):
    """Branches of a condition, each of which holds a constant of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.floor = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.maximum(x, self.floor), lambda x: torch.exp(-x), (x,))


def test_what_control_flow_holds_is_told() -> None:
    report = delegatekit.report(delegatekit.lower(Chosen(), INPUTS[:1], backends=["xnnpack"]))
    told = {name for counts in report.special_values["xnnpack"].values() for name in counts}
    assert told == {"aten.maximum.default", "aten.exp.default"}
