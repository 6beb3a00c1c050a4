"""The models room, and how quantized results are judged."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from delegatekit.plugins import LoadedBackend
from delegatekit.quantization.ratio import sqnr_db
from delegatekit_conformance.cases import models as room
from delegatekit_conformance.cases.base import Case
from delegatekit_conformance.cases.quantized import cases as quantized_cases
from delegatekit_conformance.cases.quantized import judge, max_steps
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.models import FURTHER_MODELS, MODELS, SEMANTIC_MODELS, build_model
from delegatekit_conformance.outcome import Outcome, Verdict

CONTEXT = Context("reference", PROFILES["quick"])
CASES: dict[str, Case] = {case.name: case for case in room.cases()}
SMALL = [name for name in CASES if name.endswith("/small")]
QUICK = ("models/u-net/small",)


def run(name: str, context: Context = CONTEXT) -> Outcome:
    case = CASES[name]
    return case.run(case.examples(context)[0], context)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SMALL])
def test_small_models_agree_with_eager(name: str) -> None:
    pytest.importorskip("transformers")
    outcome = run(name)
    assert outcome.verdict in (Verdict.DELEGATED, Verdict.PARTLY), outcome
    assert not outcome.core
    assert outcome.latency and outcome.eager_latency
    # Not a tolerance that anything passes.
    assert outcome.tolerance is not None and outcome.tolerance < 2e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["models/efficientnet-lite0/pretrained", "models/minilm/pretrained"])
def test_pretrained_models_agree_on_real_data(name: str) -> None:
    outcome = run(name)
    assert outcome.verdict in (Verdict.DELEGATED, Verdict.PARTLY), outcome
    assert "eager" in outcome.detail


def test_large_models_are_for_the_thorough_profile() -> None:
    outcome = run("models/resnet-50/large")
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert "thorough" in outcome.detail


def test_the_numbers_of_a_mobilevit_stay_where_float16_tells_them_from_zero() -> None:
    pytest.importorskip("transformers")
    largest: dict[str, float] = {}

    def look(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, given: Any, result: Any) -> None:
            largest[name] = float(result.abs().max())

        return hook

    torch.manual_seed(0)
    model = build_model("mobilevit", small=True)
    for name, layer in model.module.named_modules():
        if isinstance(layer, nn.Conv2d | nn.BatchNorm2d | nn.Linear):
            layer.register_forward_hook(look(name))
    with torch.no_grad():
        model.module(*model.inputs)
    # A thousand steps of float16's subnormal numbers, and far from its largest.
    assert len(largest) > 100
    assert min(largest.values()) > 1000 * 2**-24
    assert max(largest.values()) < 65504 / 100


def test_all_models_are_cases() -> None:
    assert len(CASES) == 2 + 2 * (len(MODELS) - 2 + len(FURTHER_MODELS) + len(SEMANTIC_MODELS)) + 1


def test_a_missing_package_is_not_applicable(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *, small: bool = False) -> None:
        raise ModuleNotFoundError("No module named 'transformers'", name="transformers")

    monkeypatch.setattr(room, "build_model", missing)
    outcome = run("models/vit-base/small")
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert "delegatekit-conformance[models]" in outcome.detail


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("efficientnet-lite0", "minilm")])
def test_small_configurations_are_small_and_the_same_every_time(name: str) -> None:
    pytest.importorskip("transformers")
    one, other = build_model(name, small=True), build_model(name, small=True)
    with torch.no_grad():
        assert torch.equal(one.module(*one.inputs), other.module(*other.inputs))
    assert sum(parameter.numel() for parameter in one.module.parameters()) < 1_000_000


def test_pretrained_models_have_no_small_configuration() -> None:
    with pytest.raises(ValueError, match="pretrained"):
        build_model("minilm", small=True)


def test_looks_see_what_a_user_would() -> None:
    eager = [torch.tensor([[0.1, 0.7, 0.2]]), torch.tensor([[0.5, 0.2, 0.3]])]
    assert room.same_classes(eager, eager)[0] == ""
    wrong, _ = room.same_classes([eager[0], torch.tensor([[0.3, 0.2, 0.5]])], eager)
    assert wrong == "photo 1: class 2 instead of 0"
    vectors = [torch.tensor([[1.0, 0.0]]), torch.tensor([[0.9, 0.1]]), torch.tensor([[0.0, 1.0]])]
    assert room.same_neighbors(vectors, vectors)[0] == ""
    moved = [vectors[0], torch.tensor([[0.1, 0.9]]), vectors[2]]
    assert "sentence 1: nearest to 2, not 0" in room.same_neighbors(moved, vectors)[0]


def test_a_wrong_class_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    case = CASES["models/resnet-50/small"]
    monkeypatch.setattr(case, "_look", lambda results, expected: ("photo 0: class 1 instead of 2", ""))
    outcome = case.run("", CONTEXT)
    assert outcome.verdict is Verdict.MISMATCH
    assert "build_model" in outcome.snippet


def test_a_snippet_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    exec(compile(CASES["models/u-net/small"].snippet("", CONTEXT), "snippet", "exec"), {})
    assert "output 0: largest error " in capsys.readouterr().out


# -- quantized results -------------------------------------------------------------------------------------------------


def test_equal_tensors_have_no_noise() -> None:
    x = torch.randn(10)
    assert sqnr_db(x, x) == math.inf
    assert max_steps(x, x, 0.1) == 0


def test_the_ratio_of_known_noise() -> None:
    reference = torch.ones(100)
    assert sqnr_db(reference + 0.01, reference) == pytest.approx(40.0, abs=1e-3)
    assert sqnr_db(torch.ones(3), torch.zeros(3)) == -math.inf


def test_rounding_to_eight_bits_has_the_ratio_of_the_textbook() -> None:
    """A full-scale sine in b bits: 6.02 b + 1.76 dB."""
    signal = torch.sin(torch.linspace(0, 200, 100_001, dtype=torch.float64))
    step = 2 / 2**8
    assert sqnr_db((signal / step).round() * step, signal) == pytest.approx(6.02 * 8 + 1.76, abs=0.2)


def test_one_step_is_allowed_and_two_are_not() -> None:
    reference = torch.arange(-50, 50) * 0.1
    off = reference.clone()
    off[7] += 0.1
    assert judge(off, reference, 0.1).agrees
    off[9] -= 0.2
    judged = judge(off, reference, 0.1)
    assert not judged.agrees and judged.steps == 2 and "2 steps" in judged.difference


def test_many_single_steps_are_noise() -> None:
    """All of them off by one step in the same direction: a wrong zero point."""
    reference = torch.arange(-10, 10) * 0.1
    judged = judge(reference + 0.1, reference, 0.1)
    assert judged.steps == 1 and "signal to noise" in judged.difference


def test_shapes_and_nan_are_no_rounding() -> None:
    x = torch.ones(3)
    assert "shape" in judge(x[:2], x, 0.1).difference
    assert "NaN" in judge(x * math.nan, x, 0.1).difference
    with pytest.raises(ValueError, match="above 0"):
        max_steps(x, x, 0.0)


def test_an_output_without_signal_may_be_off_by_a_step() -> None:
    assert judge(torch.tensor([0.1, 0.0]), torch.zeros(2), 0.1).agrees
    assert not judge(torch.tensor([0.2, 0.0]), torch.zeros(2), 0.1).agrees


def test_what_a_scheme_declares_inexact_is_allowed_and_no_more() -> None:
    reference = torch.arange(-50, 50) * 0.1
    off = reference.clone()
    off[7] += 0.2
    assert not judge(off, reference, 0.1).agrees
    assert judge(off, reference, 0.1, inexact=2.0**-9).agrees
    off[7] += 0.1
    assert not judge(off, reference, 0.1, inexact=2.0**-9).agrees
    small = torch.arange(-10, 10) * 0.1
    some = small + 0.1 * (torch.arange(20) % 2)
    assert judge(some, small, 0.1, inexact=2.0**-9).agrees and not judge(some, small, 0.1).agrees
    assert "signal to noise" in judge(small + 0.2, small, 0.1, inexact=2.0**-9).difference


def test_backends_without_schemes_are_not_asked() -> None:
    case = next(iter(quantized_cases()))
    context = replace(CONTEXT, backend="reference")
    (example,) = case.examples(context)
    outcome = case.run(example, context)
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert outcome.detail == "the backend declares no quantization schemes"


def test_schemes_are_those_with_the_options(
    install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin("seeded", Path(__file__).with_name("contract_backend.py").read_text())
    asked = []

    def schemes(backend: LoadedBackend, options: Any = None) -> tuple[()]:
        asked.append(options)
        return ()

    monkeypatch.setattr(LoadedBackend, "quantization_schemes", schemes)
    context = replace(CONTEXT, backend="seeded", options={"level": "2"})
    case = next(iter(quantized_cases()))
    assert case.examples(context) == ("the backend declares no quantization schemes",)
    assert [options.level for options in asked] == [2]
    assert "options={'level': '2'})" in case.snippet("int8", context)
