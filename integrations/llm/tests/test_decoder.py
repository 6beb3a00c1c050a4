"""The decoder beside transformers' own model: every family, kind of rotary embedding and size of a call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_models import build, continued, prompt_of, text_of

from delegatekit_api import DelegateKitError
from delegatekit_llm import FAMILIES, Decoder
from delegatekit_llm.lowering import check_against_model

COUNT = 64


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_family_generates_what_transformers_does(family: str) -> None:
    model, prompt = build(family), prompt_of(40)
    wanted = text_of(model, prompt, COUNT)
    assert continued(Decoder(model, context=128, chunk=16), prompt, 16, COUNT) == wanted
    assert len(set(wanted)) > 4
    # The model is as it was.
    assert model.config._attn_implementation == "eager" and text_of(model, prompt, 4) == wanted[:4]


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        {
            "rope_type": "longrope",
            "short_factor": [1.0 + number / 8 for number in range(8)],
            "long_factor": [2.0 + number for number in range(8)],
            "original_max_position_embeddings": 112,
        },
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_rotary_embeddings_are_scaled_as_in_transformers(rope: dict[str, Any]) -> None:
    # Dynamic frequencies change from 64 tokens on.
    positions = 64 if rope["rope_type"] == "dynamic" else 128
    model = build("llama", rope_parameters={"rope_theta": 10000.0, **rope}, max_position_embeddings=positions)
    decoder = Decoder(model, context=104, chunk=16)
    found, wanted = continued(decoder, prompt_of(40), 16, COUNT), text_of(model, prompt_of(40), COUNT)
    assert found == wanted and len(set(wanted)) > 4
    shapes = ({1: torch.export.Dim("tokens", min=1, max=16)}, None)
    inputs = (torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    program = torch.export.export(decoder, inputs, dynamic_shapes=shapes, strict=False).module()
    decoder.reset()
    assert continued(program, prompt_of(40), 16, 8) == wanted[:8]


@pytest.mark.parametrize("count", [1, 2, 16, 17, 31, 48, 96])
def test_a_prompt_of_any_length_fits_in_a_ring(count: int) -> None:
    # The window is of 8 tokens: places are used again from the 23rd token on.
    model, prompt = build("mistral"), prompt_of(count)
    decoder = Decoder(model, context=128, chunk=16)
    assert decoder.caches[0].tokens == 8 - 1 + 16 and decoder.caches[0].is_ring
    assert continued(decoder, prompt, 16, 32) == text_of(model, prompt, 32)


def test_a_new_text_begins_without_the_old_one() -> None:
    model = build("llama")
    decoder = Decoder(model, context=64, chunk=64)
    first = continued(decoder, prompt_of(20), 64, 8)
    assert continued(decoder, prompt_of(50), 64, 8) != first
    assert continued(decoder, prompt_of(20), 64, 8) == first
    decoder.reset()
    assert all(not buffer.any() for name, buffer in decoder.named_buffers() if "caches" in name)


def test_all_logits_are_those_of_the_model() -> None:
    model = build("qwen2")
    prompt = prompt_of(24)
    with torch.no_grad():
        found = Decoder(model, context=32, all_logits=True)(prompt, torch.tensor([0]))
        wanted = model(prompt, use_cache=False).logits
    # Sums of 96 products at most, in other orders, through 3 layers.
    torch.testing.assert_close(found, wanted, rtol=0, atol=3 * 96 * 2**-24 * float(wanted.abs().max()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda layer: setattr(layer, "is_causal", False), "has queries that see later tokens"),
        (lambda layer: setattr(layer, "layer_idx", 0), "keep keys and values under the numbers \\[0, 2\\]"),
    ],
)
def test_attention_that_a_cache_cannot_do_is_refused(change: Any, said: str) -> None:
    model = build("llama")
    change(model.model.layers[1].self_attn)
    with pytest.raises(DelegateKitError, match=said):
        Decoder(model, 64)


def test_a_family_that_is_not_known_is_refused_or_compared() -> None:
    model = build("olmo3", sliding_window=8)
    with pytest.raises(DelegateKitError, match=r"model type 'olmo3' is not one of the known families: bart, cohere"):
        Decoder(model, 64)
    decoder = Decoder(model, 64, chunk=16, known_family=False)
    check_against_model(decoder)
    assert continued(decoder, prompt_of(20), 16, 24) == text_of(model, prompt_of(20), 24)


def test_a_model_that_computes_something_else_is_found() -> None:
    model = build("llama")
    decoder = Decoder(model, 64, chunk=16)
    # Window that the layers do not tell.
    decoder.caches[1].window = 4
    with pytest.raises(DelegateKitError, match="computes something else: its logits differ by"):
        check_against_model(decoder)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"context": 129}, "context is 129, more than the positions that the model has: 128"),
        ({"context": 0}, "context is 0"),
        ({"context": 16, "chunk": 17}, "chunk is 17, more than the context: 16"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(sizes: dict[str, int], said: str) -> None:
    with pytest.raises(DelegateKitError, match=said):
        Decoder(build("llama"), **sizes)


def test_frequencies_that_change_within_the_context_are_refused() -> None:
    factors = [1.0] * 8
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": factors, "long_factor": factors}
    model = build("phi3", rope_parameters=rope, original_max_position_embeddings=32)
    with pytest.raises(DelegateKitError, match=r"change at 32 tokens, and 64 are asked for(.|\n)*context=32"):
        Decoder(model, 64)
