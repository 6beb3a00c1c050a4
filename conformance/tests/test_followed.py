"""Recipes with one more operator, which only cases of passengers try."""

from __future__ import annotations

from typing import Any

import pytest

from delegatekit_conformance import PROFILES
from delegatekit_conformance.cases.operators import OperatorCase
from delegatekit_conformance.context import Context
from delegatekit_conformance.joined import Joined
from delegatekit_conformance.recipe import Recipe, Ref, Step, TensorRecipe
from delegatekit_conformance.strategies import load_operators
from delegatekit_conformance.strategies.followed import followed

CONTEXT = Context("reference", PROFILES["quick"], stock=False)


def recipe(target: str, *args: object, **tensor: Any) -> Recipe:
    return Recipe((("x", TensorRecipe((3, 4), **tensor)),), (Step("y", target, (Ref("x"), *args)),), (Ref("y"),))


def test_results_of_numbers_become_their_negatives_or_twice_as_large() -> None:
    factors = set()
    for dims in ((0,), (1,), (0, 1), (-1,), (-2,)):
        given = recipe("aten.flip.default", dims)
        found = followed(given)
        ratio = found.module()(*found.inputs()) / given.module()(*given.inputs())
        assert len(ratio.unique()) == 1
        factors.add(float(ratio[0, 0]))
    assert factors == {-1.0, 2.0}


def test_each_of_several_results_is_looked_at() -> None:
    steps = (Step("y", "aten.topk.default", (Ref("x"), 2)),)
    given = Recipe((("x", TensorRecipe((3, 4))),), steps, (Ref("y", 0), Ref("y", 1)))
    found = followed(given)
    assert [step.target for step in found.steps] == ["aten.topk.default", "aten.neg.default"]
    assert found.outputs == (Ref("n0"), Ref("y", 1))


@pytest.mark.parametrize(
    "given",
    [
        recipe("aten.flip.default", (0,), dtype="int32", values=("integers", 0, 5)),
        recipe("aten.flip.default", (0,), values=("special",)),
        recipe("aten.flip.default", (0,), values=("uniform", 1e5, 1e6)),
        recipe("aten.flip.default", (7,)),
    ],
    ids=["integers", "special values", "large numbers", "not computable"],
)
def test_others_stay(given: Recipe) -> None:
    assert followed(given) == given


@pytest.mark.parametrize(
    ("operator", "dtype", "those"),
    [
        ("aten.permute.default", 0, slice(None)),
        ("aten.relu.default", 0, slice(-1, None)),
        ("aten.relu.default", 1, slice(0)),
    ],
    ids=["a passenger", "another operator", "of another dtype"],
)
def test_what_a_backend_takes_only_in_company_is_followed_and_of_others_one(
    operator: str, dtype: int, those: slice
) -> None:
    entry = load_operators()[operator]
    case = OperatorCase(entry, entry.dtypes[dtype])
    (program, *_) = (one for one in case.further(case.examples(CONTEXT), CONTEXT) if isinstance(one, Joined))
    in_company = [part for part in program.parts if part.steps[-1].target in ("aten.neg.default", "aten.mul.Scalar")]
    assert in_company == list(program.parts[those])
