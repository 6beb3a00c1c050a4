"""Sizes that vary: the sizes of an ordinary recipe that may change, and its calls then."""

from __future__ import annotations

import pytest

from delegatekit_conformance import PROFILES
from delegatekit_conformance.cases.operators import OperatorCase
from delegatekit_conformance.context import Context
from delegatekit_conformance.recipe import Recipe, Ref, Step, TensorRecipe
from delegatekit_conformance.strategies import load_operators
from delegatekit_conformance.strategies.varying import varying


def recipe(target: str, *args: object, x: tuple[int, ...], y: TensorRecipe | None = None) -> Recipe:
    tensors = [("x0", TensorRecipe(x))] + ([("x1", y)] if y else [])
    operands = (Ref("x0"), *([Ref("x1")] if y else []), *args)
    return Recipe(tuple(tensors), (Step("y0", target, operands),), (Ref("y0"),))


def test_equal_sizes_change_together_and_calls_go_up_and_down() -> None:
    found = varying(recipe("aten.add.Tensor", x=(3, 5), y=TensorRecipe((5,))))
    assert found is not None
    assert {size.symbol: size.places for size in found.sizes} == {"n3": (("x0", 0),), "n5": (("x0", 1), ("x1", 0))}
    assert found.calls == ((4, 6), (2, 2), (3, 5))
    assert all(size.high > size.low + 10 for size in found.sizes)
    assert [value.shape for value in found.inputs((4, 6))] == [(4, 6), (6,)]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (recipe("aten.view.default", (6, 5), x=(3, 2, 5)), {"n3"}),  # 5 is written in the call; 2 and 3 are its 6
        (recipe("aten.linear.default", x=(7, 4), y=TensorRecipe((3, 4), constant=True)), {"n7"}),
        (recipe("aten.sum.dim_IntList", [1], x=(4, 6)), {"n4", "n6"}),
    ],
)
def test_sizes_that_the_program_has_written_out_stay(given: Recipe, left: set[str]) -> None:
    found = varying(given)
    assert found is None or {size.symbol for size in found.sizes} <= left


def test_a_recipe_of_fixed_sizes_is_none() -> None:
    assert varying(recipe("aten.relu.default", x=(1, 1))) is None
    assert varying(recipe("aten.relu.default", x=(0, 3))) is None
    assert varying(recipe("aten.linear.default", x=(1, 4), y=TensorRecipe((3, 4), constant=True))) is None


def test_an_operator_is_tried_with_one_such_recipe_in_its_first_dtype() -> None:
    context = Context("reference", PROFILES["quick"], stock=False)
    entry = load_operators()["aten.sub.Tensor"]
    for dtype, count in ((entry.dtypes[0], 1), ("float16", 0)):
        case = OperatorCase(entry, dtype)
        more = case.further(case.examples(context), context)
        assert sum(bool(one.sizes) for one in more if isinstance(one, Recipe)) == count
