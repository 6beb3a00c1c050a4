"""Selections: any choice that numbers within the bounds lead to is right, and others are not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node

from delegatekit_toolkit.accuracy import Chosen, Operand, Selection, selection_of

aten = torch.ops.aten


def call(target: Any, *args: Any, **kwargs: Any) -> tuple[Node, Selection]:
    """A call on the placeholders that stand for None, and its rule."""
    graph = Graph()
    given = [graph.placeholder(f"x{index}") if item is None else item for index, item in enumerate(args)]
    node = graph.call_function(target, tuple(given), kwargs)
    rule = selection_of(node)
    assert rule is not None
    return node, rule


def within(value: torch.Tensor, bound: float | torch.Tensor) -> Operand:
    return Operand(value, value - bound, value + bound)


def operands_of(node: Node, rule: Selection, operands: list[Operand]) -> dict[str, Operand]:
    """The operands by name: numbers are known exactly."""
    items = dict(zip(rule.reads, node.args, strict=False))
    left = iter(operands)
    return {name: next(left) if isinstance(item, Node) else Operand.exact(item) for name, item in items.items()}


def result(node: Node, *values: Any) -> Any:
    target: Any = node.target
    left = iter(values)
    return target(*(next(left) if isinstance(item, Node) else item for item in node.args), **node.kwargs)


def judged(target: Any, args: tuple[Any, ...], operands: list[Operand], given: torch.Tensor, **kwargs: Any) -> Chosen:
    node, rule = call(target, *args, **kwargs)
    own = rule.choice(result(node, *(item.value for item in operands)))
    return rule.judged(operands_of(node, rule, operands), given, own)


CALLS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "argmax": (aten.argmax.default, (None, -1), {}),
    "argmax of all": (aten.argmax.default, (None,), {}),
    "argmin, kept": (aten.argmin.default, (None, 0, True), {}),
    "max": (aten.max.dim, (None, 1), {}),
    "min, kept": (aten.min.dim, (None, 0, True), {}),
    "topk": (aten.topk.default, (None, 3, 1), {}),
    "smallest": (aten.topk.default, (None, 4, 0, False), {}),
    "topk in any order": (aten.topk.default, (None, 3, 1, True, False), {}),
    "sort": (aten.sort.default, (None, 1, True), {}),
    "stable sort": (aten.sort.stable, (None,), {"stable": True, "dim": 0}),
    "argsort": (aten.argsort.default, (None, 0), {}),
    "greater": (aten.gt.Scalar, (None, 0.5), {}),
    "less, of tensors": (aten.le.Tensor, (None, None), {}),
    "equal": (aten.eq.Tensor, (None, None), {}),
    "floor": (aten.floor.default, (None,), {}),
    "round": (aten.round.default, (None,), {}),
    "sign": (aten.sign.default, (None,), {}),
    "whole quotient": (aten.div.Tensor_mode, (None, None), {"rounding_mode": "floor"}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("special", [False, True])
def test_what_numbers_within_the_bounds_lead_to_is_right(name: str, special: bool) -> None:
    target, args, kwargs = CALLS[name]
    generator, differing = torch.Generator().manual_seed(0), 0
    node, rule = call(target, *args, **kwargs)
    for _ in range(60):
        values = [torch.randint(-5, 7, (6, 7), generator=generator).double() / 4 for item in args if item is None]
        if special:
            values = [item.masked_fill(item == 1.5, math.inf).masked_fill(item == 1.0, math.nan) for item in values]
        bounds = [torch.rand((6, 7), generator=generator, dtype=torch.float64) * 0.3 for _ in values]
        near = [v + b * (2 * torch.rand((6, 7), generator=generator) - 1) for v, b in zip(values, bounds, strict=True)]
        given = rule.choice(result(node, *near))
        operands = [within(value, bound) for value, bound in zip(values, bounds, strict=True)]
        found = rule.judged(operands_of(node, rule, operands), given, rule.choice(result(node, *values)))
        assert not found.difference, found
        assert found.error <= found.bound
        differing += found.differing
    assert differing or (special and name == "argmax of all")  # the first NaN


@pytest.mark.parametrize("name", CALLS)
def test_without_bounds_the_reference_is_right_and_another_choice_is_not(name: str) -> None:
    target, args, kwargs = CALLS[name]
    generator = torch.Generator().manual_seed(1)
    values = [
        torch.randperm(42, generator=generator).reshape(6, 7).double() / 7 - 2.03 for item in args if item is None
    ]
    node, rule = call(target, *args, **kwargs)
    own = rule.choice(result(node, *values))
    operands = operands_of(node, rule, list(map(Operand.exact, values)))
    assert rule.judged(operands, own, own) == Chosen(0, own.numel())
    other = ~own if own.dtype == torch.bool else own + 1
    if not own.is_floating_point() and own.dtype != torch.bool:
        other = own.roll(1, -1) if own.dim() else (own + 1) % 42
    assert rule.judged(operands, other + 1 if name == "topk in any order" else other, own).difference


X = torch.tensor([0.1, 0.5, 0.52, 0.9]).double()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([3, 2, 1], ""),
        ([3, 1, 2], ""),
        ([2, 1, 3], "of 3 indices select elements that are off by"),
        ([3, 2, 0], "1 of 3 indices select elements that are off by 0.444 of the largest"),
        ([3, 2, 2], "selects elements twice: 1 of 3"),
        ([3, 2, 4], "has indices outside 0 to 3: 1 of 3"),
        ([3, -1, 1], "has indices outside 0 to 3: 1 of 3"),
    ],
)
def test_the_indices_of_a_topk_are_judged_by_their_elements(given: list[int], words: str) -> None:
    found = judged(aten.topk.default, (None, 3), [within(X, 0.02)], torch.tensor(given))
    assert words in found.difference and bool(found.difference) is bool(words)


def test_an_order_may_only_change_by_neighbors_within_both_bounds() -> None:
    x = torch.tensor([0.0, 1.0, 2.0, 3.0]).double()
    right, wrong = torch.tensor([1, 0, 3, 2]), torch.tensor([2, 1, 0, 3])
    assert not judged(aten.sort.default, (None,), [within(x, 0.6)], right).difference
    assert judged(aten.sort.default, (None,), [within(x, 0.6)], wrong).difference
    assert judged(aten.sort.default, (None,), [within(x, 0.4)], right).difference


def test_equal_elements_keep_their_order_in_a_stable_sort_only() -> None:
    x, given = torch.zeros(3).double(), torch.tensor([0, 2, 1])
    words = "1 equal elements are not in their order"
    assert judged(aten.sort.stable, (None,), [Operand.exact(x)], given, stable=True).difference == words
    assert not judged(aten.sort.stable, (None,), [within(x, 1e-9)], given, stable=True).difference
    assert not judged(aten.sort.default, (None,), [Operand.exact(x)], given).difference


def test_a_number_that_may_be_infinite_in_a_precision_may_be_the_largest() -> None:
    x = torch.tensor([70000.0, 80000.0]).double()
    operand = Operand(x, x, torch.full_like(x, math.inf))
    assert not judged(aten.argmax.default, (None, 0), [operand], torch.tensor(0)).difference
    assert judged(aten.argmax.default, (None, 0), [Operand.exact(x)], torch.tensor(0)).difference


@pytest.mark.parametrize(("value", "right"), [(0.5, True), (0.51, True), (0.53, False), (0.48, False)])
def test_a_comparison_may_go_either_way_at_its_threshold(value: float, right: bool) -> None:
    x = torch.tensor([value]).double()
    own = x > 0.5
    _, rule = call(aten.gt.Scalar, None, 0.5)
    found = rule.judged({"self": within(x, 0.015), "other": Operand.exact(0.5)}, ~own, own)
    assert bool(found.difference) is not right
    assert (found.error <= found.bound) is right


def test_elements_are_taken_along_the_given_indices() -> None:
    x, given = torch.tensor([[1.0, 2.0], [4.0, 3.0]]).double(), torch.tensor([0, 1])
    for target, args in ((aten.max.dim, (None, 1)), (aten.min.dim, (None, 1))):
        node, rule = call(target, *args)
        values, places = rule.along({"self": x}, given, result(node, x))
        assert values.tolist() == [1.0, 3.0] and places is given


def test_conversions_of_integers_select_nothing() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(2, dtype=torch.int32)
    node = graph.call_function(aten._to_copy.default, (x,), {"dtype": torch.int64})
    node.meta["val"] = torch.zeros(2, dtype=torch.int64)
    assert selection_of(node) is None
    x.meta["val"] = torch.zeros(2)
    assert selection_of(node) is not None
