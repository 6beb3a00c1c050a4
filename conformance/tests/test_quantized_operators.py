"""Quantized operators: schemes tried with each, drawn examples, and faults found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators

from delegatekit.plugins import LoadedBackend
from delegatekit_api import Availability
from delegatekit_conformance.cases import quantized
from delegatekit_conformance.cases.keeping import choices
from delegatekit_conformance.cases.options import OptionCase
from delegatekit_conformance.cases.quantized_operators import QuantizedOperator, cases, is_plain, other_targets, show
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.drawing import draw
from delegatekit_conformance.outcome import Verdict
from delegatekit_conformance.strategies import load_operators
from delegatekit_conformance.trial import flatten

QUICK = Context("xnnpack", PROFILES["quick"])


def _off_by_steps(sound: Any) -> Any:
    """A judge that gets results which are too large."""

    class Off:
        def __init__(self, method: Any) -> None:
            self._method = method

        def run(self, inputs: Any) -> Any:
            return [result + 0.5 for result in flatten(self._method.run(inputs))]

    def judged(*args: Any) -> Any:
        return sound(*args[:-1], Off(args[-1]))

    return judged


def case(operator: str) -> QuantizedOperator:
    return QuantizedOperator(load_operators()[operator])


def test_what_eager_makes_of_nan_is_no_reference() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.5, 0, -128, 127, torch.int8)

    class Roots(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return step(x.sqrt())

    for number, verdict in ((4.0, Verdict.DELEGATED), (-4.0, Verdict.NOT_APPLICABLE)):
        found = quantized.judged(Roots(), (torch.full((2,), number),), "int8", replace(QUICK, stock=False))
        assert found.verdict is verdict, found


def test_an_operator_that_no_scheme_names_has_no_examples() -> None:
    assert case("aten.atan2.default").examples(QUICK) == ()


def test_examples_are_programs_of_finite_numbers_for_the_first_scheme_and_another() -> None:
    examples = case("aten.mul.Tensor").examples(QUICK)
    assert [example.scheme for example in examples] == ["int8", "int8-per-tensor"]
    for example in examples:
        assert len(example.recipes.parts) == 4
        assert all(bool(x.isfinite().all()) and x.numel() for part in example.recipes.parts for x in part.inputs())


def test_a_table_of_constants_is_quantized_though_no_input_has_floats() -> None:
    plain = filter(is_plain, draw(load_operators()["aten.embedding.default"].recipes("float32"), 16, 0))
    assert any(recipe.tensors[0][1].constant for recipe in plain)


def test_longer_profiles_have_more_programs_for_every_scheme() -> None:
    longer = replace(QUICK, profile=replace(QUICK.profile, joined=3))
    examples = case("aten.mul.Tensor").examples(longer)
    assert (
        len(examples)
        == 3 * len({example.scheme for example in examples})
        > len(case("aten.mul.Tensor").examples(QUICK))
    )


def test_views_are_quantized_after_what_is_quantized() -> None:
    (example, *_) = case("aten.permute.default").examples(QUICK)
    assert example.led
    assert case("aten.permute.default").run(example, QUICK).verdict in (Verdict.DELEGATED, Verdict.PARTLY)


def test_a_wrong_quantized_kernel_is_found_and_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quantized, "_compared", _off_by_steps(quantized._compared))
    operator = case("aten.mul.Tensor")
    (example, *_) = operator.examples(QUICK)
    outcome = operator.run(example, QUICK)
    assert (
        outcome.verdict is Verdict.MISMATCH
        and "steps of" in outcome.detail
        and "show('quantized/aten.mul.Tensor'" in outcome.snippet
    )
    show("quantized/aten.mul.Tensor", QUICK)
    assert "wrong result" in capsys.readouterr().out


@pytest.mark.parametrize("operator", ["aten.dropout.default", "aten.conv1d.padding"])
def test_a_scheme_is_tried_for_other_targets_that_have_it(operator: str) -> None:
    context = Context("coreml", PROFILES["quick"])  # whose oldest targets have no schemes
    tried = case(operator)
    first = tried.examples(context)
    examples = (*first, *tried.further(first, context))
    assert any(example.options for example in examples)
    for example in examples:
        assert example.scheme in quantized.scheme_names(context.beside(dict(example.options)))


def test_targets_that_cannot_be_compiled_for_here_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(self: object, options: Any = None) -> Availability:
        return Availability(getattr(options, "target", "") != "ios26", "this computer lacks what ios26 needs")

    context = Context("coreml", PROFILES["quick"])
    assert {"target": "ios26"} in [dict(options) for options in other_targets(context)]
    monkeypatch.setattr(LoadedBackend, "compiler_availability", answer)
    assert {"target": "ios26"} not in [dict(options) for options in other_targets(context)]
    assert {"target": "ios26"} not in list(choices(context)) and {"target": "ios18"} in list(choices(context))
    outcome = OptionCase("target", "ios26").run("linear", context)
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert outcome.detail == "cannot compile here: this computer lacks what ios26 needs"


def test_names_are_of_the_room() -> None:
    names = [item.name for item in cases()]
    assert "quantized/aten.mul.Tensor" in names and len(set(names)) == len(names)
