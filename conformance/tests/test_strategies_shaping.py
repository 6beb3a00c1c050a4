"""The strategies of operators that move elements: their examples are valid and cover the declared forms."""

from __future__ import annotations

import math
from typing import Any

import pytest
from strategy_checks import arguments, check_operator, check_shrinks, drawn, has_empty, operators_of, ranks

from delegatekit_conformance.strategies import shaping

_NAMES = operators_of(shaping)


@pytest.mark.parametrize("name", _NAMES)
def test_examples_are_valid(name: str) -> None:
    check_operator(name, first=4, others=1, exported=_NAMES.index(name) % 3 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", _NAMES)
def test_many_examples_are_valid(name: str) -> None:
    check_operator(name, first=30, others=10, exported=3)


@pytest.mark.parametrize("name", ["aten.cat.default", "aten.view.default", "aten.constant_pad_nd.default"])
def test_examples_shrink(name: str) -> None:
    check_shrinks(name)


@pytest.mark.parametrize("name", ["aten.view.default", "aten.permute.default", "aten.slice.Tensor"])
def test_views_alone_twice_beside_their_source_of_results_and_used(name: str) -> None:
    forms = set()
    for recipe in drawn(name, count=120):
        inputs = {tensor_name for tensor_name, tensor in recipe.tensors if not tensor.constant}
        returned = [ref.name for ref in recipe.outputs]
        holds = {
            "alone": len(recipe.steps) == len(returned) == 1,
            "twice": len(set(returned)) < len(returned),
            "beside its source": bool(inputs & set(returned)),
            "of a result": recipe.steps[0].target != name,
            "used": recipe.steps[-1].target != name,
        }
        forms |= {form for form, held in holds.items() if held}
    assert forms == {"alone", "twice", "beside its source", "of a result", "used"}


def test_views_of_and_to_every_rank() -> None:
    recipes = drawn("aten.view.default", count=150)
    sizes: set[Any] = arguments(recipes, "aten.view.default", 1)
    assert ranks(recipes) == {len(size) for size in sizes} == set(range(6))
    assert any(-1 in size for size in sizes)
    assert has_empty(recipes)


def test_slices_begin_and_end_inside_outside_and_nowhere() -> None:
    name = "aten.slice.Tensor"
    recipes = drawn(name, count=200)
    starts: set[Any] = arguments(recipes, name, 2)
    assert None in starts and min(start for start in starts if start is not None) < -6
    assert {None, 2**63 - 1, -1, 0} <= arguments(recipes, name, 3)
    assert arguments(recipes, name, 4) == {1, 2, 3}


def test_cat_of_empty_tensors_of_other_dtypes_and_of_the_same_twice() -> None:
    recipes = drawn("aten.cat.default", count=150)
    parts: set[Any] = arguments(recipes, "aten.cat.default", 0)
    counts = {len(items) for items in parts}
    assert counts >= {1, 2, 3, 4} and max(counts) > 5
    assert any(len(set(items)) < len(items) for items in parts)
    tensors = [[tensor for _, tensor in recipe.tensors] for recipe in recipes]
    assert any(len({tensor.dtype for tensor in group}) > 1 for group in tensors)
    assert any(tensor.shape == (0,) for group in tensors if len(group) > 1 for tensor in group)


def test_pads_take_away_and_fill_with_any_number() -> None:
    name = "aten.constant_pad_nd.default"
    recipes = drawn(name, count=200)
    pads: set[Any] = arguments(recipes, name, 1)
    assert () in pads and any(min(pad, default=0) < 0 for pad in pads)
    fills: set[Any] = arguments(recipes, name, 2)
    assert {math.inf, -math.inf, 0.1} <= fills and any(math.isnan(fill) for fill in fills)
