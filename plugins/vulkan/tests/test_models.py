"""Whole networks: one delegate each, run by our runtime, eager within 1e-3 of the largest value."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import delegatekit
from delegatekit_conformance.models import build_model

pytestmark = pytest.mark.needs_device

SMALL = ("mobilenet-v2", "resnet-50", "vit-base", "bert-base", "llama-100m", "whisper-tiny encoder", "u-net")
WHOLE = (*SMALL, "efficientnet-lite0", "minilm")


def check(name: str, *, small: bool, bound: float, **options: Any) -> None:
    case = build_model(name, small=small)
    program = delegatekit.lower(case.export(), backends=["vulkan"], options={"vulkan": options})
    (method,) = program.report().methods
    assert len(method.delegates) == 1, str(program.report())
    with torch.no_grad():
        wanted = case.module(*case.inputs)
    got = delegatekit.load(program.buffer)["forward"](*case.inputs)
    assert got.shape == wanted.shape
    error = (got - wanted).abs().max() / wanted.abs().max()
    assert error <= bound, error


@pytest.mark.parametrize("name", SMALL)
def test_small_networks(name: str) -> None:
    pytest.importorskip("transformers")
    check(name, small=True, bound=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_networks(name: str) -> None:
    pytest.importorskip("transformers")
    check(name, small=False, bound=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_networks_in_half_precision(name: str) -> None:
    pytest.importorskip("transformers")
    check(name, small=True, bound=3e-2, fp16=True)
