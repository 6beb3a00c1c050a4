"""The statement of docs/architecture.md on element types: after the rules, operands have one dtype, with exceptions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from delegatekit.edge import build_edge
from delegatekit_toolkit.testing import Apply

REAL, INTEGERS = torch.ones(2), torch.ones(2, dtype=torch.int8)


def operand_dtypes(function: Callable[..., Any], *inputs: torch.Tensor) -> list[tuple[str, set[str]]]:
    """Each call but conversions, with the dtypes of its operands."""
    view = build_edge(torch.export.export(Apply(function), inputs, strict=False)).view
    return [
        (call.operator, {operand.dtype_name for operand in call.operands})
        for call in view.calls()
        if call.operator != "aten._to_copy.default"
    ]


BINARY = [
    *(getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "mod", "floordiv", "pow")),
    *(getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(getattr(torch, name) for name in ("maximum", "minimum", "fmin", "fmax", "atan2", "fmod")),
]


@pytest.mark.parametrize("function", BINARY, ids=lambda function: function.__name__)
def test_operands_of_different_dtypes_are_brought_to_one(function: Callable[..., Any]) -> None:
    for inputs in ((REAL, INTEGERS), (INTEGERS, REAL), (REAL.half(), REAL), (INTEGERS.long(), INTEGERS)):
        assert all(len(dtypes) == 1 for _, dtypes in operand_dtypes(function, *inputs))


@pytest.mark.parametrize("function", [operator.and_, operator.or_, operator.xor])
def test_so_are_those_of_bitwise_operators(function: Callable[..., Any]) -> None:
    ((_, dtypes),) = operand_dtypes(function, INTEGERS, INTEGERS.long())
    assert dtypes == {"int64"}


def test_numbers_do_not_count_any_more() -> None:
    assert operand_dtypes(lambda x: x + 1.5, INTEGERS) == [("aten.add.Scalar", {"float32"})]
    assert operand_dtypes(lambda x: x > 0.5, INTEGERS) == [("aten.gt.Scalar", {"float32"})]
    assert operand_dtypes(lambda x: x > 3, INTEGERS) == [("aten.gt.Scalar", {"int8"})]


def test_branches_of_where_and_bounds_of_clamp_are_converted() -> None:
    found = dict(operand_dtypes(torch.where, REAL > 0, REAL, INTEGERS))
    assert found["aten.where.self"] == {"bool", "float32"}
    found = dict(operand_dtypes(torch.clamp, REAL, INTEGERS, INTEGERS))
    assert found["aten.clamp.Tensor"] == {"float32"}


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x, y: torch.cat([x, y]), "aten.cat.default"),
        (torch.copysign, "aten.copysign.Tensor"),
        (torch.logical_and, "aten.logical_and.default"),
        (torch.bucketize, "aten.bucketize.Tensor"),
    ],
)
def test_some_operators_keep_operands_of_different_dtypes(function: Callable[..., Any], name: str) -> None:
    assert dict(operand_dtypes(function, REAL, REAL.double()))[name] == {"float32", "float64"}
