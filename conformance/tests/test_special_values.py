"""What a declared special value explains of a wrong result, and what not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from delegatekit_conformance.cases import special_values
from delegatekit_conformance.cases.specimens import recipe_of, tensor_of
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Outcome, Verdict
from delegatekit_conformance.recipe import Ref
from delegatekit_conformance.trial import Subject, run_calls

CONTEXT = Context("reference", PROFILES["quick"], stock=False)
WRONG = Outcome(Verdict.MISMATCH, "output 0 has infinities where the reference differs", blame="backend")


class Device:
    """A method that divides, without infinities and NaN, `factor` times too much."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def run(self, inputs: Any) -> Any:
        return [self.factor * (inputs[0] / inputs[1]).nan_to_num(0.0, 65504.0, -65504.0)]


def judged(subject: Subject, factor: float) -> Outcome:
    expected = list(subject.references(subject.accuracy.roundoff("float32")))
    return run_calls(subject, expected, "float32", Device(factor))


def explanation(divisors: tuple[float, ...], factor: float, monkeypatch: pytest.MonkeyPatch) -> str:
    """What explains the fault of a device that declares to have no infinity."""
    tensors = {"x": ("literal", (1.0, 2.0, -3.0)), "y": ("literal", divisors)}
    drawn = {name: tensor_of(3, values=values) for name, values in tensors.items()}
    recipe = recipe_of(drawn, ("q", "aten.div.Tensor", Ref("x"), Ref("y")))
    assert judged(Subject.of_recipe(recipe), factor).verdict is Verdict.MISMATCH or (factor == 1.0 and all(divisors))
    monkeypatch.setattr(special_values, "_said", lambda subject, context: ["no infinity"])
    monkeypatch.setattr(special_values, "try_subject", lambda subject, context: judged(subject, factor))
    found = special_values.explained(recipe, replace(WRONG, example=recipe.describe()), CONTEXT)
    return found.declared


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_what_eager_makes_infinite_of_ordinary_numbers_is_explained(
    zero: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert explanation((zero, 1.0, 0.5), 1.0, monkeypatch) == "no infinity"


def test_finite_elements_beside_infinite_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explanation((0.0, 1.0, 0.5), 1.01, monkeypatch) == ""


def test_ordinary_numbers_explain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explanation((2.0, 1.0, 0.5), 1.0, monkeypatch) == ""
