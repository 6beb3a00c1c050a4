"""Forms of quantized programs: their results on each backend's targets, and faults of one target are found."""

from __future__ import annotations

import pytest
import torch

from delegatekit_conformance.cases.quantized_forms import (
    FormsCase,
    axes,
    cases,
    choices,
    comparisons,
    sizes,
    transposed,
    windows,
)
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Verdict
from delegatekit_ethosu.runtime.stream import pooling
from delegatekit_ethosu.runtime.stream.windows import padded
from delegatekit_toolkit.tosa.lowering.operators import masks

QUICK = PROFILES["quick"]


@pytest.mark.parametrize("build", [comparisons, choices, sizes, windows, transposed, axes])
def test_the_programs_are_finite_and_small(build: object) -> None:
    assert callable(build)
    torch.manual_seed(0)
    module, inputs = build()
    assert sum(item.numel() for item in inputs) <= 4096
    results = module.eval()(*inputs)
    assert all(bool(item.isfinite().all()) for item in results if item.is_floating_point())


def test_masks_hide_some_scores_and_in_one_row_all() -> None:
    torch.manual_seed(0)
    module, inputs = choices()
    hidden = module(*inputs)[-2]
    assert hidden.any() and not hidden.all()
    near = module(*inputs)[1]
    assert torch.equal(near > 0.01, hidden | ~hidden.any(-1, keepdim=True))


def test_the_last_target_is_tried_by_its_first_and_its_last_scheme() -> None:
    case = FormsCase("choices", choices)
    first, second, third = case.examples(Context("ethosu", QUICK))
    assert first.describe() == "int8" and not first.options
    assert dict(second.options)["target"] == dict(third.options)["target"] == "ethos-u85-2048"
    assert (second.scheme, third.scheme) == ("int8", "int16")
    (alone,) = case.examples(Context("xnnpack", QUICK))
    assert alone.scheme == "int8"


def test_without_schemes_nothing_is_tried() -> None:
    context = Context("reference", QUICK)
    for case in cases():
        (none,) = case.examples(context)
        assert case.run(none, context).verdict is Verdict.NOT_APPLICABLE


def test_a_border_that_is_not_below_all_numbers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    context, case = Context("ethosu", QUICK, stock=False), FormsCase("windows", windows)
    here, *_ = case.examples(context)
    monkeypatch.setattr(pooling, "padded", lambda values, kernel, upscale, _: padded(values, kernel, upscale, 0))
    outcome = case.run(here, context)
    assert outcome.verdict is Verdict.MISMATCH and "output 0" in outcome.detail


def test_logic_that_reads_one_operand_twice_is_found_on_another_target(monkeypatch: pytest.MonkeyPatch) -> None:
    context, case = Context("ethosu", QUICK, stock=False), FormsCase("choices", choices)
    here, elsewhere, _ = case.examples(context)
    assert case.run(elsewhere, context).verdict is Verdict.PARTLY
    sound = masks._binary
    monkeypatch.setattr(masks, "_binary", lambda b, kind, left, right, name="": sound(b, kind, left, left, name))
    assert case.run(here, context).verdict is Verdict.PARTLY
    outcome = case.run(elsewhere, context)
    assert outcome.verdict.is_fault and "show('quantized/forms-of-choices'" in outcome.snippet
