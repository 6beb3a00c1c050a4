"""The strategies of reductions and of sorting: their examples are valid and cover the declared forms."""

from __future__ import annotations

import pytest
import torch
from strategy_checks import (
    arguments,
    check_operator,
    check_shrinks,
    drawn,
    has_empty,
    has_special,
    layouts,
    operators_of,
    ranks,
)

from delegatekit_conformance.strategies import reductions

_NAMES = operators_of(reductions)

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")


@pytest.mark.parametrize("name", _NAMES)
def test_examples_are_valid(name: str) -> None:
    check_operator(name, first=4, others=1, exported=_NAMES.index(name) % 3 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", _NAMES)
def test_many_examples_are_valid(name: str) -> None:
    check_operator(name, first=30, others=10, exported=3)


@pytest.mark.parametrize("name", ["aten.sum.dim_IntList", "aten.var.correction", "aten.sort.stable"])
def test_examples_shrink(name: str) -> None:
    check_shrinks(name)


def test_sums_over_no_some_and_all_dimensions_with_every_option() -> None:
    name = "aten.sum.dim_IntList"
    recipes = drawn(name, count=200)
    assert ranks(recipes) == set(range(6))
    assert has_empty(recipes) and has_special(recipes)
    assert layouts(recipes) == {"contiguous", "channels_last", "transposed", "strided", "expanded"}
    dims = arguments(recipes, name, 1)
    assert {(), None} <= dims
    assert any(isinstance(dim, tuple) and min(dim, default=0) < 0 for dim in dims)
    assert arguments(recipes, name, 2) == {False, True}
    assert arguments(recipes, name, "dtype") >= {torch.float16, torch.float64, torch.int64, torch.int8}


@pytest.mark.parametrize("name", ["aten.argmax.default", "aten.max.dim"])
def test_extremes_among_equal_numbers_and_nan(name: str) -> None:
    inputs = [recipe.inputs()[0] for recipe in drawn(name, count=80)]
    assert any(x.isnan().sum() > 1 for x in inputs)
    assert any(x.isinf().any() and not x.isnan().any() for x in inputs)
    assert any(x.isfinite().all() and x.numel() > x.unique().numel() for x in inputs)


def test_places_of_sorted_numbers_are_returned_only_where_they_are_determined() -> None:
    for recipe in drawn("aten.sort.default", count=60):
        if any(ref.index == 1 for ref in recipe.outputs):
            x = recipe.inputs()[0]
            assert x.numel() == x.unique().numel(), recipe.describe()
    ties = [recipe.inputs()[0] for recipe in drawn("aten.sort.stable", count=60) if recipe.outputs[0].index == 1]
    assert any(x.numel() > x.unique().numel() for x in ties)


def test_topk_takes_none_some_and_all_in_either_order() -> None:
    name = "aten.topk.default"
    recipes = drawn(name, count=150)
    assert {0, 1, 3} <= arguments(recipes, name, 1)
    assert arguments(recipes, name, 3) == {False, True}
    assert arguments(recipes, name, 4) == {False}


def test_variances_of_fewer_numbers_than_the_correction() -> None:
    results = [recipe.module()(*recipe.inputs()) for recipe in drawn("aten.var.correction", count=120)]
    assert any(result.isnan().any() for result in results)
    assert any(result.isinf().any() for result in results)
    assert any(result.numel() and result.isfinite().all() for result in results)


def test_half_precision_is_driven_to_where_intermediate_results_would_overflow() -> None:
    sums = [recipe.inputs()[0].double().sum() for recipe in drawn("aten.mean.default", "float16", 60)]
    assert any(abs(value) > 2 * 65504 for value in sums if value.isfinite())
