"""Strategies of elementwise operators, comparisons, conversions and creation; no core operator is forgotten."""

from __future__ import annotations

import math
from typing import Any

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
from torch.utils._python_dispatch import TorchDispatchMode

from delegatekit_conformance.recipe import LAYOUTS, find_target
from delegatekit_conformance.strategies import comparisons, conversions, creation, elementwise, load_operators
from delegatekit_conformance.strategies.registry import EXCLUDED
from delegatekit_conformance.trial import flatten

OPERATORS = operators_of(comparisons, conversions, creation, elementwise)


def core_operators() -> set[str]:
    """The overloads that PyTorch tags as core ATen."""
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if not name.startswith("aten::") or not hasattr(torch.ops.aten, packet):
            continue
        target = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
        if target is not None and torch.Tag.core in target.tags:
            found.add(f"aten.{packet}.{overload or 'default'}")
    return found


def test_no_core_operator_is_forgotten() -> None:
    core, known = core_operators(), set(load_operators())
    assert len(core) > 180
    assert core - known == set(EXCLUDED)


def test_every_strategy_has_an_operator() -> None:
    for name, entry in load_operators().items():
        assert callable(find_target(name)), name
        assert entry.dtypes, f"{name} has no dtypes"
        assert len(set(entry.dtypes)) == len(entry.dtypes), name


# What the strategies share is tried on some: exporting and shrinking take a while.
@pytest.mark.sweep
@pytest.mark.parametrize("name", OPERATORS)
def test_examples_are_valid(name: str) -> None:
    check_operator(name, first=4, others=1, exported=OPERATORS.index(name) % 4 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_many_examples_are_valid(name: str) -> None:
    check_operator(name, first=45, others=15, exported=5)


@pytest.mark.parametrize("name", OPERATORS[::6])
def test_examples_shrink(name: str) -> None:
    check_shrinks(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_all_examples_shrink(name: str) -> None:
    check_shrinks(name, count=12)


# What the examples cover


def test_shapes_and_layouts() -> None:
    recipes = drawn("aten.add.Tensor", count=150)
    assert ranks(recipes) == set(range(6))
    assert layouts(recipes) == set(LAYOUTS)
    assert has_empty(recipes)
    assert any(len(recipe.tensors) == 2 and recipe.tensors[1][1].constant for recipe in recipes)
    assert any(len({tensor.shape for _, tensor in recipe.tensors}) == 2 for recipe in recipes)


def test_dtypes_are_mixed() -> None:
    pairs = {
        tuple(tensor.dtype for _, tensor in recipe.tensors)
        for dtype in ("float32", "int64", "bool")
        for recipe in drawn("aten.mul.Tensor", dtype, 80)
    }
    assert len(pairs) > 10
    assert {"float32", "int64", "bool"} <= {second for first, second in pairs if first != second}


def test_a_tensor_without_dimensions_has_another_dtype() -> None:
    recipes = drawn("aten.add.Tensor", "float16", 100)
    assert any(
        tensor.shape == () and tensor.dtype != "float16" and recipe.tensors[0][1].shape != ()
        for recipe in recipes
        for _, tensor in recipe.tensors
    )


@pytest.mark.parametrize("name", ["aten.add.Tensor", "aten.maximum.default", "aten.eq.Tensor", "aten.exp.default"])
def test_not_a_number(name: str) -> None:
    assert has_special(drawn(name, count=80))


def test_integers_wrap_around() -> None:
    for recipe in drawn("aten.add.Tensor", "int8", 60):
        if len(values := recipe.inputs()) == 2 and values[0].dtype == values[1].dtype:
            wide = values[0].long() + values[1].long()
            if wide.numel() and int(wide.abs().max()) > 128:
                return
    raise AssertionError("no sum exceeds int8")


def test_large_integers_that_no_double_holds() -> None:
    values = [value for recipe in drawn("aten.eq.Tensor", "int64", 60) for value in recipe.inputs()]
    assert any((value.double().long() != value).any() for value in values if value.dtype == torch.int64)


def test_halves_are_rounded() -> None:
    values = torch.cat([recipe.inputs()[0].flatten() for recipe in drawn("aten.round.default", count=40)])
    for half in (0.5, 1.5, 2.5, -0.5, -1.5, -2.5):
        assert (values == half).any(), half


def test_division_by_zero() -> None:
    for name in ("aten.div.Tensor", "aten.div.Tensor_mode", "aten.fmod.Tensor", "aten.remainder.Tensor"):
        assert any((recipe.module()(*recipe.inputs()).isnan()).any() for recipe in drawn(name, count=80)), name


@pytest.mark.parametrize(
    ("name", "position", "wanted"),
    [
        ("aten.div.Tensor_mode", "rounding_mode", {"trunc", "floor", None}),
        ("aten.gelu.default", "approximate", {"tanh", "none"}),
        ("aten.add.Tensor", "alpha", {2.0, 0.5, 0.0}),
        ("aten.elu.default", 3, {1.0, 0.5, 2}),
        ("aten.clamp.default", 1, {None, -math.inf, -1.0}),
        ("aten.pow.Tensor_Scalar", 1, {2, 3, 0.5, -0.5, 0, 1, 2.5}),
        ("aten.softplus.default", 2, {20, 1.0, 3}),
    ],
)
def test_arguments(name: str, position: int | str, wanted: set[object]) -> None:
    assert wanted <= arguments(drawn(name, count=150), name, position)


def test_bounds_in_the_wrong_order() -> None:
    for recipe in drawn("aten.clamp.default", count=60):
        low, *high = recipe.steps[0].args[1:]
        if low is not None and high and low > high[0]:
            return
    raise AssertionError("the lower bound is never above the upper")


class _Made(TorchDispatchMode):
    """Random numbers are all this one."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self._number = number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.rand.default:
            return torch.full(args[0], self._number)
        return func(*args, **kwargs or {})


@pytest.mark.parametrize(("number", "inside"), [(0.0, True), (1 - 2**-13, True), (-0.25, False), (1.25, False)])
def test_random_numbers_are_inside_their_range_in_half_precision_too(number: float, inside: bool) -> None:
    for recipe in drawn("aten.rand.default"):
        with _Made(torch.tensor(number).half().item()):
            within, *_ = flatten(recipe.module()(*recipe.inputs()))
        assert bool((within == inside).all()), recipe.describe()


def test_conversions_of_all_dtypes() -> None:
    name = "aten._to_copy.default"
    for dtype in load_operators()[name].dtypes:
        targets = arguments(drawn(name, dtype, 45), name, "dtype")
        assert len(targets) > 6, dtype
