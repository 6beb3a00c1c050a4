"""Operators of two operands with chosen scales and zero points: the programs, their trials, and the faults found."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from delegatekit_conformance.cases import two_operands
from delegatekit_conformance.cases.quantized import NO_SCHEMES
from delegatekit_conformance.cases.quantized_forms import Tried
from delegatekit_conformance.cases.two_operands import OPERATORS, Combinations, Form
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Verdict
from delegatekit_conformance.recipe import define

CASES = {case.name.rpartition("-")[2]: case for case in two_operands.cases()}
CONTEXT = Context("xnnpack", PROFILES["quick"])
FORMS = (Form(), Form(torch.uint8, 0, 255), Form(torch.int16, -32767, 32767, True), Form(torch.uint16, 0, 65535))


class _Eager:
    """A method that computes as a module does."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.run = lambda inputs: module(*inputs)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.dtype))
@pytest.mark.parametrize("name", OPERATORS)
def test_results_are_exact_and_within_their_ranges(name: str, form: Form) -> None:
    define("quantized_decomposed")
    module = Combinations(OPERATORS[name], form)
    inputs = module.inputs()
    exact = OPERATORS[name].compute(*inputs)
    results = module(*inputs)
    assert len(results) == len(module.labels) == len(module.chosen)
    assert len(module.chosen) == (3 if form.symmetric else 6 if exact.dtype is torch.bool else 12)
    for result in results:
        assert torch.equal(result, exact)


@pytest.mark.parametrize("name", ["maximum", "eq", "cat"])
def test_a_sound_backend_computes_with_the_numbers(name: str) -> None:
    (example,) = CASES[name].examples(CONTEXT)
    outcome = CASES[name].run(example, CONTEXT)
    assert example == Tried("int8") and outcome.delegates, outcome.detail


@pytest.mark.parametrize("name", ["lt", "add", "requantize"])
def test_zero_points_that_are_ignored_where_scales_are_equal_are_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    define("quantized_decomposed")
    module = Combinations(OPERATORS[name], Form())
    inputs, sound = module.inputs(), Form.rounded

    def as_it_is(form: Form, x: torch.Tensor, step: float, distance: int) -> Any:
        ignored = step == 1 / 8 and distance != module.first
        return sound(form, x, step, distance) + (distance - module.first) * step * ignored

    expected = module(*inputs)
    monkeypatch.setattr(Form, "rounded", as_it_is)
    outcome = two_operands._exactly(module.labels, inputs, expected, module.step, 0.0, _Eager(module))
    assert outcome.verdict is Verdict.MISMATCH
    assert "the same scale" in outcome.detail


def test_declared_errors_excuse_a_step_and_no_zero_point() -> None:
    define("quantized_decomposed")
    module = Combinations(OPERATORS["add"], Form())
    inputs = module.inputs()
    expected = module(*inputs)
    for steps, declared, verdict in (
        (1, 0.0, Verdict.MISMATCH),
        (1, 2.0**-9, Verdict.DELEGATED),
        (9, 2.0**-9, Verdict.MISMATCH),
    ):
        shifted = [result + steps * module.step for result in expected]
        outcome = two_operands._exactly(module.labels, inputs, shifted, module.step, declared, _Eager(module))
        assert outcome.verdict is verdict


def test_backends_have_the_types_of_their_schemes() -> None:
    case = CASES["add"]
    assert [one.scheme for one in case.examples(Context("vgf", PROFILES["quick"]))] == ["int8", "int16"]
    context = Context("reference", PROFILES["quick"])
    assert case.examples(context) == [Tried(NO_SCHEMES)]
    assert case.run(Tried(NO_SCHEMES), context).verdict is Verdict.NOT_APPLICABLE


def test_what_a_target_refuses_is_tried_with_the_last_one() -> None:
    context, case = Context("ethosu", PROFILES["quick"]), CASES["eq"]
    first = case.examples(context)
    further = case.further(first, context)
    assert [one.scheme for one in further] == [one.scheme for one in first] and all(one.options for one in further)
