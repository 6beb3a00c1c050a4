"""Arguments of `quantize`: the programs, what the cases judge, and faults of `quantize` that they find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.fx import GraphModule, Node

from delegatekit.quantization import bias, calibration, choices, flow, patterns, sensitivity, state
from delegatekit.quantization.report import QuantizationReport
from delegatekit_conformance.cases import quantizing
from delegatekit_conformance.cases.quantizing import (
    ENDS,
    CorrectedCase,
    KeptCase,
    MeasuredCase,
    QuantizingCase,
    StateCase,
    cases,
    layers,
    off_mean,
    places,
    tensors,
)
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Verdict

CONTEXT = Context("xnnpack", PROFILES["quick"], stock=False)
#: A scheme whose activations are calibrated, and one of weights.
SCHEMES = ("int8", "int8-dynamic")


def broken(case: QuantizingCase, scheme: str = "int8") -> str:
    """The text of the fault that a case finds."""
    outcome = case.run(scheme, CONTEXT)
    assert outcome.verdict is Verdict.VIOLATION and outcome.blame == "core", outcome
    assert f"show('{case.name}'" in outcome.snippet
    return outcome.detail


def test_the_program_shares_what_it_should() -> None:
    module, calls = layers()
    named = tensors(module)
    assert named["left.weight"] is named["right.weight"] and named["one.bias"] is named["other.bias"]
    assert len(module(*calls[0])) == len(ENDS)
    known = places(module, calls[0])
    assert [place.operator for place in known.values() if place.module == "twice"] == ["linear", "linear"]
    assert {place.operator for place in known.values()} == {"linear", "conv2d", "relu"}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_what_quantize_does_is_right(case: QuantizingCase, scheme: str) -> None:
    assert scheme in case.examples(CONTEXT)
    outcome = case.run(scheme, CONTEXT)
    assert outcome.verdict in (Verdict.PASSED, Verdict.DELEGATED, Verdict.PARTLY), outcome


def test_a_plugins_own_quantizer_is_judged_by_the_model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantizing._Quantize, "is_own", True)
    for case in (KeptCase(), CorrectedCase(), MeasuredCase()):
        outcome = case.run("int8", CONTEXT)
        assert outcome.verdict is Verdict.NOT_APPLICABLE and case.argument in outcome.detail
    assert StateCase().run("int8", CONTEXT).verdict is Verdict.PASSED


def test_without_schemes_nothing_is_tried() -> None:
    context = Context("reference", PROFILES["quick"])
    for case in cases():
        (none,) = case.examples(context)
        assert case.run(none, context).verdict is Verdict.NOT_APPLICABLE


def test_the_schemes_of_the_quick_profile_share_the_modules() -> None:
    module, calls = layers()
    known = places(module, calls[0])

    def tried(scheme: str, profile: str) -> list[Any]:
        context = Context("xnnpack", PROFILES[profile])
        share = quantizing._share(quantizing._Quantize(scheme, context))
        return [item for item, _, _ in quantizing._selections(known, share) if isinstance(item, str)]

    first, *others = KeptCase().examples(CONTEXT)
    everything = tried(first, "quick")
    assert everything == tried(others[0], "default") and {"linear", "relu", "twice", "above"} < set(everything)
    assert {item for scheme in others for item in tried(scheme, "quick")} == set(everything)
    assert all(len(tried(scheme, "quick")) < len(everything) for scheme in others)


def test_a_fused_activation_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = patterns._Finder._with_activations

    def fused(self: Any, node: Node, rule: Any) -> tuple[Node, ...]:
        kept, self._kept = self._kept, lambda follower: kept(follower) and None
        try:
            return sound(self, node, rule)
        finally:
            self._kept = kept

    monkeypatch.setattr(patterns._Finder, "_with_activations", fused)
    assert "keep_float=['relu'], rectified (relu) is quantized" in broken(KeptCase())


def test_a_selector_that_keeps_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = choices.KeptInFloat.__call__

    def with_the_next(self: choices.KeptInFloat, node: Node) -> str | None:
        tied = [user for value in node.all_input_nodes[1:2] for user in value.users]
        return next((reason for item in (node, *tied) if (reason := sound(self, item))), None)

    monkeypatch.setattr(choices.KeptInFloat, "__call__", with_the_next)
    assert "it was not chosen" in broken(KeptCase())


@pytest.mark.parametrize(
    ("has", "said"),
    [(True, "is in the module that has it quantized"), (False, "is not in the module that has it float")],
)
def test_a_report_that_is_not_what_the_module_has_is_found(
    has: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantizing, "_has", lambda quantized, weight: has)
    assert said in broken(KeptCase())


def test_a_reason_that_is_not_the_users_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = choices.KeptInFloat.__call__
    monkeypatch.setattr(choices.KeptInFloat, "__call__", lambda self, node: sound(self, node) and "it is in float")
    assert 'is in float because "it is in float": it should be "kept by keep_float=' in broken(KeptCase())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_shared_bias_that_every_layer_corrects_is_found(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def for_all(module: GraphModule, place: tuple[Node, Node], error: torch.Tensor) -> None:
        path = str(place[0].target)
        bias.set_attribute(module, path, bias.attribute(module, path).detach() + error)

    monkeypatch.setattr(bias, "_add", for_all)
    assert "is off by" in broken(CorrectedCase(), scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_biases_that_are_not_corrected_are_found(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "correct_biases", lambda *arguments: None)
    assert "with correct_bias, twice: channel" in broken(CorrectedCase(), scheme)


def test_a_mean_error_beyond_roundings_is_told() -> None:
    wanted = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    step = 0.02
    rounded = (wanted / step).round() * step
    assert not off_mean(rounded, wanted, step) and not off_mean(wanted, wanted, 0.0)
    rounded[:, 3] += step
    assert "channel 3 is off by 0.02" in off_mean(rounded, wanted, step)
    # A clipped element is no rounding.
    clipped = wanted.clamp(max=float(wanted[:, 2].max()) - 1.0)
    assert "channel 2" not in off_mean(clipped, wanted, step)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_worst_layers_of_a_whole_run_are_found(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def worst(report: QuantizationReport, count: int) -> list[str]:
        return [row.anchor for row in sorted(report.quantized, key=lambda row: row.sqnr or 0.0)[:count]]

    monkeypatch.setattr(flow, "_worst", worst)
    assert "keep_worst_float=2 keeps" in broken(MeasuredCase(), scheme)


def test_ratios_of_values_that_are_not_replaced_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivity, "_Forced", sensitivity._Comparer)
    assert "own_sqnr of" in broken(MeasuredCase())


def test_a_ratio_of_the_last_input_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = sensitivity.SignalToNoise.add

    def last(self: sensitivity.SignalToNoise, expected: Any, actual: Any) -> None:
        self._signal = self._noise = 0.0
        sound(self, expected, actual)

    monkeypatch.setattr(sensitivity, "SignalToNoise", type("Last", (sensitivity.SignalToNoise,), {"add": last}))
    assert "the report's sqnr of the outputs is" in broken(MeasuredCase())


def test_measuring_that_changes_the_quantized_module_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = flow.measure_layers

    def changing(original: GraphModule, quantized: GraphModule, *more: Any) -> QuantizationReport:
        next(item for item in tensors(quantized).values() if item.dtype is torch.int8).zero_()
        return sound(original, quantized, *more)

    monkeypatch.setattr(flow, "measure_layers", changing)
    assert "with measure, the quantized module has another" in broken(MeasuredCase())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_state_that_is_not_copied_is_found(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_written", lambda module: [])
    assert "of the model" in broken(StateCase(), scheme)


def test_writes_through_views_that_are_not_seen_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "functionalized", lambda program: (program, {}))
    monkeypatch.setattr(state, "_viewed", lambda node: node)
    assert "changes parts of the model" in broken(StateCase(), "int8-dynamic")


def test_a_module_that_begins_after_the_calibration_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def not_kept(module: GraphModule) -> Iterator[None]:
        yield

    monkeypatch.setattr(flow, "state_kept", not_kept)
    assert "the quantized module begins with another whole than the model has" in broken(StateCase())


def test_calibration_inputs_that_are_changed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = calibration.Calibration._checked

    def changing(self: calibration.Calibration, index: int, item: Any, example: Any) -> tuple[Any, ...]:
        for value in item:
            value.clamp_(max=0.5)
        return sound(self, index, item, example)

    monkeypatch.setattr(calibration.Calibration, "_checked", changing)
    assert "quantize changes calibration input 0" in broken(StateCase())


def test_numbers_that_differ_from_time_to_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound, times = flow._finished, iter(range(9))

    def finished(module: GraphModule, report: QuantizationReport) -> Any:
        quantized = sound(module, report)
        next(item for name, item in tensors(quantized).items() if item.is_floating_point()).mul_(1.0 + next(times))
        return quantized

    monkeypatch.setattr(flow, "_finished", finished)
    assert "the module that was quantized again has another" in broken(StateCase())
