"""Wrong results that a declared special value explains, and others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from delegatekit_conformance.cases import special_values
from delegatekit_conformance.cases.specimens import recipe_of, tensor_of
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Outcome, Verdict
from delegatekit_conformance.recipe import Ref
from delegatekit_conformance.trial import Subject, run_calls

CONTEXT = Context("reference", PROFILES["quick"], stock=False)
WRONG = Outcome(Verdict.MISMATCH, "output 0 has infinities where the reference differs", blame="backend")


class Device:
    """A method that divides, without infinities and NaN, `factor` times too much: by everything, or by one number."""

    def __init__(self, factor: float, number: float | None = None) -> None:
        self.factor, self.number = factor, number

    def run(self, inputs: Any) -> Any:
        quotient = (inputs[0] / inputs[1]).nan_to_num(0.0, 65504.0, -65504.0)
        wrong = torch.tensor(True) if self.number is None else inputs[1] == self.number
        return [torch.where(wrong, self.factor * quotient, quotient)]


def judged(subject: Subject, device: Device) -> Outcome:
    expected = list(subject.references(subject.accuracy.roundoff("float32")))
    return run_calls(subject, expected, "float32", device)


def explanation(
    divisors: tuple[float, ...], device: Device, monkeypatch: pytest.MonkeyPatch, backend: str = "reference"
) -> str:
    """The explanation of the fault of a device that declares to have no infinity."""
    tensors = {"x": ("literal", (1.0, 2.0, -3.0)), "y": ("literal", divisors)}
    drawn = {name: tensor_of(3, values=values) for name, values in tensors.items()}
    recipe = recipe_of(drawn, ("q", "aten.div.Tensor", Ref("x"), Ref("y")))
    is_right = device.factor == 1.0 and all(divisors)
    assert judged(Subject.of_recipe(recipe), device).verdict is Verdict.MISMATCH or is_right
    monkeypatch.setattr(special_values, "_said", lambda subject, context: ["no infinity"])
    monkeypatch.setattr(special_values, "try_subject", lambda subject, context: judged(subject, device))
    found = special_values.explained(
        recipe, replace(WRONG, example=recipe.describe()), replace(CONTEXT, backend=backend)
    )
    return found.declared


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_what_eager_makes_infinite_of_ordinary_numbers_is_explained(
    zero: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert explanation((zero, 1.0, 0.5), Device(1.0), monkeypatch) == "no infinity"


def test_finite_elements_beside_infinite_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explanation((0.0, 1.0, 0.5), Device(1.01), monkeypatch) == ""


@pytest.mark.parametrize(("words", "found"), [("no infinity", ""), ("infinity is refused", "infinity is refused")])
def test_a_run_that_fails_is_explained_by_words_that_say_so(
    words: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of({"x": tensor_of(2, values=("literal", (1.0, torch.inf)))}, ("q", "aten.neg.default", Ref("x")))
    monkeypatch.setattr(special_values, "_said", lambda subject, context: [words])
    monkeypatch.setattr(special_values, "try_subject", lambda subject, context: Outcome(Verdict.DELEGATED))
    failed = Outcome(Verdict.RUN_ERROR, "no infinity, please", blame="backend", example=recipe.describe())
    assert special_values.explained(recipe, failed, CONTEXT).declared == found


def test_ordinary_numbers_explain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explanation((2.0, 1.0, 0.5), Device(1.0), monkeypatch) == ""


@pytest.mark.parametrize(
    ("backend", "number"),
    [("reference", 2.0**-10), ("reference", 2.0**20), ("coreml", 2.0**-10), ("coreml", 2.0**15)],
)
def test_small_and_large_numbers_that_a_device_has_explain_nothing(
    backend: str, number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert explanation((number, number, number), Device(1.01, number), monkeypatch, backend) == ""


@pytest.mark.parametrize(("backend", "number"), [("reference", 2.0**-140), ("coreml", 2.0**-15)])
def test_numbers_without_all_digits_explain_a_fault(
    backend: str, number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert explanation((number, 1.0, 1.0), Device(1.01, number), monkeypatch, backend) == "no infinity"
