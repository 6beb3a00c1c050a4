"""The strategies of operators that read and write at places: their examples are valid and cover the declared forms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from strategy_checks import arguments, check_operator, check_shrinks, drawn, operators_of

from delegatekit_conformance.recipe import Recipe, Ref, TensorRecipe
from delegatekit_conformance.strategies import indexing

_NAMES = operators_of(indexing)


@pytest.mark.parametrize("name", _NAMES)
def test_examples_are_valid(name: str) -> None:
    check_operator(name, first=4, others=1, exported=_NAMES.index(name) % 3 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", _NAMES)
def test_many_examples_are_valid(name: str) -> None:
    check_operator(name, first=30, others=10, exported=3)


@pytest.mark.parametrize("name", ["aten.index.Tensor", "aten.scatter.src", "aten._embedding_bag.default"])
def test_examples_shrink(name: str) -> None:
    check_shrinks(name)


def _tensor(recipe: Recipe, position: int) -> TensorRecipe:
    """The tensor that the first step gets at a position."""
    ref: Any = recipe.steps[0].args[position]
    return dict(recipe.tensors)[ref.name]


def test_indices_are_several_tensors_none_and_masks() -> None:
    recipes = drawn("aten.index.Tensor", count=150)
    indices: set[Any] = arguments(recipes, "aten.index.Tensor", 1)
    kinds = {tuple(isinstance(item, Ref) for item in items) for items in indices}
    assert {(True,), (True, True), (False, True), (True, False, True)} <= kinds
    tensors = [tensor for recipe in recipes for _, tensor in recipe.tensors]
    assert "bool" in {tensor.dtype for tensor in tensors}
    places = [tensor for tensor in tensors if tensor.dtype in ("int64", "int32")]
    assert any(tensor.make().numel() and tensor.make().min() < 0 for tensor in places)
    assert {tensor.constant for tensor in places} == {False, True}
    assert {len(tensor.shape) for tensor in places} == {0, 1, 2, 3, 4, 5}


def test_no_place_is_written_twice_with_different_numbers() -> None:
    checked = 0
    for recipe in drawn("aten.scatter.src", count=60):
        index, dim = _tensor(recipe, 2).make(), recipe.steps[0].args[1]
        if index.dim() and index.shape[dim] > 1 and index.numel():
            assert (index.sort(dim).values.diff(dim=dim) > 0).all(), recipe.describe()
            checked += 1
    assert checked > 10


def test_index_put_adds_overwrites_and_masks() -> None:
    name = "aten.index_put.default"
    recipes = drawn(name, count=150)
    assert arguments(recipes, name, 3) == {False, True}
    assert any(tensor.dtype == "bool" for recipe in recipes for _, tensor in recipe.tensors)


def test_scatter_reduce_with_every_reduction_and_with_and_without_itself() -> None:
    steps = [recipe.steps[0] for recipe in drawn("aten.scatter_reduce.two", count=400)]
    forms = {(step.args[4], dict(step.kwargs).get("include_self")) for step in steps}
    reductions = ("sum", "prod", "mean", "amax", "amin")
    assert forms == {(reduction, itself) for reduction in reductions for itself in (None, False, True)}


def test_embedding_bags_of_every_mode_and_of_no_elements() -> None:
    name = "aten._embedding_bag.default"
    recipes = drawn(name, count=80)
    assert arguments(recipes, name, 4) == {0, 1, 2}
    assert arguments(recipes, name, 7) == {False, True}
    assert None in arguments(recipes, name, 6) and len(arguments(recipes, name, 6)) > 1
    assert any((torch.diff(_tensor(recipe, 2).make()) == 0).any() for recipe in recipes)
