"""Units of a quantized program, and the reasons why other parts are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed

from delegatekit_api.nodes import operator_name
from delegatekit_api.schemes import Quantization
from delegatekit_toolkit.testing import view_of
from delegatekit_toolkit.units import FUNCTION, REQUANTIZE, Unit, UnitRules, Units

X = torch.linspace(-1, 1, 12).reshape(3, 4)
RELU, TANH, ADD, WHERE = "aten.relu.default", "aten.tanh.default", "aten.add.Tensor", "aten.where.self"


def integers(x: Any, scale: float = 0.01, low: int = -128) -> Any:
    return torch.ops.quantized_decomposed.quantize_per_tensor(x, scale, 0, low, 127, torch.int8)


def numbers(x: Any, scale: float = 0.01, low: int = -128) -> Any:
    return torch.ops.quantized_decomposed.dequantize_per_tensor(x, scale, 0, low, 127, torch.int8)


def rounded(x: Any, **how: Any) -> Any:
    return numbers(integers(x, **how), **how)


def eight_bits(quantization: Quantization | None) -> str | None:
    return None if quantization is not None and quantization.minimum == -128 else "not of the whole range"


def rules(**more: Any) -> UnitRules:
    return UnitRules(
        "the device",
        anchors={ADD, WHERE, "aten.softmax.int"},
        activation=eight_bits,
        clamps={RELU},
        pointwise={RELU, TANH, "aten.mul.Tensor"},
        pairs={"aten.softmax.int": WHERE},
        truths={"aten.gt.Tensor"},
        **more,
    )


def units_of(function: Callable[..., Any], *inputs: torch.Tensor, **more: Any) -> Units:
    return Units(view_of(function, *(inputs or (X,))), rules(**more))


def described(unit: Unit) -> tuple[str, list[str], int, int]:
    return unit.kind, [call.operator for call in unit.inner], len(unit.operands), len(unit.results)


UNITS: dict[str, tuple[Callable[..., Any], list[tuple[str, list[str], int, int]]]] = {
    "an operator": (lambda x: rounded(rounded(x) + rounded(-x)), [(ADD, [ADD], 2, 1)]),
    "a clamp after it": (lambda x: rounded(torch.relu(rounded(x) + rounded(-x))), [(ADD, [ADD, RELU], 2, 1)]),
    "two results": (
        lambda x: ((y := rounded(x) + rounded(-x)), rounded(y), rounded(y, scale=0.5))[1:],
        [(ADD, [ADD], 2, 2)],
    ),
    "a function": (lambda x: rounded(torch.tanh(torch.relu(rounded(x)))), [(FUNCTION, [RELU, TANH], 1, 1)]),
    "a function of one tensor twice": (
        lambda x: rounded((y := rounded(x)) * torch.tanh(y)),
        [(FUNCTION, [TANH, "aten.mul.Tensor"], 1, 1)],
    ),
    "a pair": (
        lambda x: rounded(torch.where(x > 5, -x, rounded(x)).softmax(-1)),
        [(WHERE, [WHERE, "aten.softmax.int"], 1, 1)],
    ),
    "a requantize": (lambda x: rounded(rounded(x), scale=0.5), [(REQUANTIZE, [], 1, 1)]),
    "truth": (lambda x: rounded(x) > rounded(-x), [("aten.gt.Tensor", ["aten.gt.Tensor"], 2, 0)]),
}


@pytest.mark.parametrize("name", UNITS)
def test_units(name: str) -> None:
    function, wanted = UNITS[name]
    found = units_of(function)
    assert [described(unit) for unit in found.units] == wanted
    (unit,) = found.units
    assert all(unit in found.of(node) for node in unit.nodes)
    assert (unit.clamp is not None) == (name == "a clamp after it")


REFUSED: dict[str, tuple[Callable[..., Any], str, str]] = {
    "without a lowering": (lambda x: rounded(rounded(x).sum(0)), "aten.sum.dim_IntList", "has no lowering for the dev"),
    "read as numbers": (lambda x: (rounded(y := rounded(x) + rounded(-x)), y), ADD, "it is a result before it is quan"),
    "of another range": (lambda x: rounded(torch.tanh(rounded(x, low=-127))), TANH, "is not of the whole range"),
    "a clamp of what others read": (
        lambda x: (rounded(torch.relu(y := rounded(x) + rounded(-x))), y * 2),
        RELU,
        "is not quantized, and others read it",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_unit_has_a_reason(name: str) -> None:
    function, operator, reason = REFUSED[name]
    found = units_of(function)
    reasons = {operator_name(node): text for node, text in found.reasons.items()}
    assert not found.units and reason in reasons[operator]


def test_functions_may_be_restricted_and_say_why() -> None:
    def plain(calls: Any, quantization: Quantization) -> bool:
        return len(calls) == 1

    function = UNITS["a function"][0]
    found = units_of(function, is_function=plain, function_obstacle=lambda call: f"{call.operator} is too much")
    (reason,) = {text for node, text in found.reasons.items() if operator_name(node) == TANH}
    assert not found.units and reason == f"{TANH} is too much"
    assert units_of(lambda x: rounded(torch.tanh(rounded(x))), is_function=plain).units


def test_what_is_dropped_takes_along_what_shares_its_operands() -> None:
    def chain(x: Any) -> Any:
        first = rounded(x)
        second = rounded(first + first)
        return rounded(torch.tanh(second)), rounded(second + first), rounded(torch.tanh(rounded(-x)))

    found = units_of(chain)
    assert [unit.kind for unit in found.units] == [ADD, FUNCTION, ADD, FUNCTION]
    dropped = found.units[2]
    found.settle(lambda unit: "not wanted" if unit == dropped else None)
    # Its operands are read outside now: so are the units that share them.
    assert [(unit.kind, unit.operands[0].node.args[0].args[0].name) for unit in found.units] == [(FUNCTION, "neg")]
    assert found.reasons[dropped.anchor.node] == "not wanted"
    assert any("which is not for the device, reads" in reason for reason in found.reasons.values())
