"""Whole networks: one delegate each, with the numbers of eager."""

from __future__ import annotations

import pytest

from delegatekit_conformance import testkit
from delegatekit_conformance.models import FURTHER_MODELS, build_model

#: There is no formula for whole networks: sums of hundreds of products follow one another, and norms in between reduce
#: errors. This is 168 roundings of float32 (2^-24 each), in some dozens of layers; users notice 1e-3.
BOUND = 1e-5
FOREIGN = (*FURTHER_MODELS, "mobilevit", "lstm tagger", "minilm")
SMALL = ("resnet-50", "vit-base", "bert-base", "llama-100m", "whisper-tiny encoder", "u-net")


@pytest.mark.parametrize("name", ["mobilenet-v2", *(pytest.param(name, marks=pytest.mark.sweep) for name in SMALL)])
def test_a_network_is_one_delegate_that_is_right(name: str) -> None:
    pytest.importorskip("transformers")
    case = build_model(name, small=True)
    testkit.compare(testkit.lower(case.module, *case.inputs, backend="mlx"), tolerance=BOUND)


@pytest.mark.sweep
@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_network_is_one_delegate_that_is_right(name: str) -> None:
    """Networks that this backend was not written for."""
    pytest.importorskip("transformers")
    case = build_model(name, small=name != "minilm")
    testkit.compare(testkit.lower(case.module, *case.inputs, backend="mlx"), tolerance=BOUND)
