"""Quantized programs with state: writes that a quantizer loses, and state that calibration leaves, are found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from delegatekit.quantization import flow
from delegatekit_conformance.cases.quantized import cases as patterns
from delegatekit_conformance.cases.quantized_state import cases
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Verdict

STATE = {case.name.partition("/state-")[2]: case for case in cases()}
PATTERNS = {case.name.partition("/")[2]: case for case in patterns()}
VGF = Context("vgf", PROFILES["quick"])


@pytest.mark.parametrize("name", ["parts-of-layers", "shift-register", "accumulate"])
def test_what_is_right_passes(name: str) -> None:
    outcome = STATE[name].run("int8", VGF)
    assert outcome.verdict in (Verdict.DELEGATED, Verdict.PARTLY), outcome


def test_a_lost_write_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "functionalized", lambda program: (program, {}))
    outcome = STATE["parts-of-layers"].run("int8", VGF)
    assert outcome.verdict is Verdict.MISMATCH and outcome.blame == "core", outcome


def test_state_of_the_calibration_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def leaves(module: torch.nn.Module) -> Iterator[None]:
        yield

    monkeypatch.setattr(flow, "state_kept", leaves)
    outcome = STATE["accumulate"].run("int8", VGF)
    assert outcome.verdict is Verdict.MISMATCH and "against the float module" in outcome.detail, outcome


def test_a_given_buffer_that_changes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    given = flow.quantize

    def touching(model: Any, *arguments: Any, **settings: Any) -> Any:
        next(model.buffers()).add_(1)
        return given(model, *arguments, **settings)

    monkeypatch.setattr("delegatekit.quantize", touching)
    outcome = STATE["accumulate"].run("int8", VGF)
    assert outcome.detail == "quantizing changed the buffer total of the given module"


def test_a_scheme_that_ruins_a_model_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PATTERNS["attention-padded"].run("int8", VGF).verdict is Verdict.DELEGATED
    monkeypatch.setattr(flow, "unfit_layers", lambda prepared, layers: {})
    outcome = PATTERNS["attention-padded"].run("int8", VGF)
    assert outcome.verdict is Verdict.MISMATCH and "dB against the float module" in outcome.detail
