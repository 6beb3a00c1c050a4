"""Embeddings of 8 and 4 bits: half a step from the float ones, and the same bits in eager mode and in a file."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_models import build, continued, prompt_of

import delegatekit
from delegatekit_api import DelegateKitError
from delegatekit_llm import Decoder, lower
from delegatekit_llm.embeddings import LARGEST, QuantizedEmbedding


def _embedding(size: int) -> torch.nn.Embedding:
    torch.manual_seed(0)
    found = torch.nn.Embedding(50, size)
    with torch.no_grad():
        found.weight[3] = 0
        found.weight[4] *= 1000
    return found


@pytest.mark.parametrize(("bits", "size", "group"), [(8, 64, 64), (8, 7, 7), (4, 64, 32), (4, 18, 18)])
def test_rows_are_half_a_step_from_the_float_ones(bits: int, size: int, group: int) -> None:
    embedding = _embedding(size)
    found = QuantizedEmbedding(embedding, bits)
    tokens = torch.arange(50)[None]
    steps = embedding.weight.unflatten(1, (-1, group)).abs().amax(-1, keepdim=True) / LARGEST[bits]
    error = (found(tokens)[0] - embedding.weight).unflatten(1, (-1, group)).abs()
    # A float is rounded twice: when it is divided by the step, and when it is multiplied by it.
    assert (error <= steps * (0.5 + 2 * LARGEST[bits] * 2**-24)).all()
    assert found.integers.dtype == torch.int8 and found.integers.shape[1] == size * bits // 8
    assert found.scales.shape == (50, size // group)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_file_computes_the_bits_of_eager(bits: int) -> None:
    from executorch.runtime import Runtime

    module = QuantizedEmbedding(_embedding(64), bits)
    shapes = ({1: torch.export.Dim("tokens", min=1, max=9)},)
    content = delegatekit.lower(module, (torch.zeros(1, 3, dtype=torch.int64),), dynamic_shapes=shapes, backends=[])
    tokens = torch.tensor([[3, 4, 49, 0, 1, 2, 4]])
    wanted = module(tokens)
    assert torch.equal(delegatekit.load(content.buffer)["forward"](tokens), wanted)
    held = content.buffer  # the runtime reads it where it is
    stock = Runtime.get().load_program(held).load_method("forward")
    assert torch.equal(stock.execute([tokens])[0], wanted)


@pytest.mark.parametrize("family", ["gemma3_text", "llama"])
def test_a_model_with_a_small_embedding(family: str) -> None:
    # Gemma multiplies its rows by a factor; its embedding is the head's weight, too, which stays as it is.
    model = build(family)
    own: Any = model.get_input_embeddings()
    decoder = Decoder(model, 64, embedding_bits=8)
    lowered = lower(model, ["xnnpack"], context=64, chunk=16, embedding_bits=8)
    found = continued(delegatekit.load(lowered.program.buffer)["forward"], prompt_of(20), 16, 24)
    assert found == continued(decoder, prompt_of(20), 16, 24)
    assert model.get_input_embeddings() is own
    row = decoder.embedding(torch.tensor([[7]])) if decoder.embedding is not None else own.weight
    step = own.weight[7].abs().max() / 127 * (64**0.5 if family == "gemma3_text" else 1)
    assert 0 < (row - own(torch.tensor([[7]]))).abs().max() <= step * 0.51


@pytest.mark.parametrize(
    ("embedding", "bits", "said"),
    [
        (torch.nn.Embedding(4, 8), 3, "embeddings of 3 bits"),
        (torch.nn.Embedding(4, 7), 4, "7 numbers in a row"),
        (torch.nn.Embedding(4, 8, max_norm=1.0), 8, "not a plain lookup"),
        (torch.nn.Linear(4, 8), 8, "not a plain lookup"),
    ],
)
def test_what_cannot_be_made_smaller_is_refused(embedding: torch.nn.Module, bits: int, said: str) -> None:
    with pytest.raises(DelegateKitError, match=said):
        QuantizedEmbedding(embedding, bits)
