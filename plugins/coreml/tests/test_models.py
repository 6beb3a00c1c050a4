"""Whole networks: one delegate each, run by our interpreter, compared with eager."""

from __future__ import annotations

import pytest
import torch

import delegatekit
from delegatekit_conformance.models import build_model

SMALL = ("mobilenet-v2", "resnet-50", "vit-base", "bert-base", "llama-100m", "whisper-tiny encoder", "u-net")
WHOLE = (*SMALL, "efficientnet-lite0", "minilm")


def error_of(name: str, *, small: bool, precision: str) -> float:
    """The largest difference from eager, relative to the largest number; all of it is in one delegate."""
    case = build_model(name, small=small)
    program = delegatekit.lower(case.export(), backends=["coreml"], options={"coreml": {"precision": precision}})
    (method,) = program.report().methods
    assert len(method.delegates) == 1 and not method.fallback, str(program.report())
    with torch.no_grad():
        wanted = case.module(*case.inputs)
    got = delegatekit.load(program.buffer)["forward"](*case.inputs)
    assert got.shape == wanted.shape
    return float((got - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("name", SMALL)
def test_small_networks(name: str) -> None:
    pytest.importorskip("transformers")
    assert error_of(name, small=True, precision="float32") <= 1e-5


@pytest.mark.parametrize("name", SMALL)
def test_small_networks_in_half_precision(name: str) -> None:
    pytest.importorskip("transformers")
    # Rounding in every layer: 2^-11 each, in networks of up to 50 layers.
    assert error_of(name, small=True, precision="float16") <= 2e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_networks(name: str) -> None:
    pytest.importorskip("transformers")
    assert error_of(name, small=False, precision="float32") <= 1e-5
