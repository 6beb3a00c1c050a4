"""Caches of 8 bits: half a step from the float ones, and the same tokens in eager mode and in a file."""

from __future__ import annotations

import pytest
import torch
from small_models import build, continued, in_stock, logits_of, prompt_of, text_of

import delegatekit
from delegatekit_api import DelegateKitError
from delegatekit_llm import Decoder, lower
from delegatekit_llm.caches import numbers_of, rounded


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_numbers_are_half_a_step_from_the_float_ones(dtype: torch.dtype) -> None:
    numbers = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    numbers[0, 1], numbers[0, 2], numbers[1, 1, 3] = 0, 1e-3 * numbers[0, 2], 1000
    integers, scales = rounded(numbers)
    assert integers.dtype == torch.int8 and scales.shape == (3, 5) and numbers_of(integers, dtype).dtype == dtype
    found = numbers_of(integers, dtype).double() * scales[..., None].double()
    steps = numbers.double().abs().amax(-1, keepdim=True) / 127
    # A number is rounded when it is divided, when that is multiplied, and as a part of the largest.
    assert ((found - numbers.double()).abs() <= steps * (0.5 + 3 * 127 * torch.finfo(dtype).eps / 2)).all()


# Gemma's layers have rings.
@pytest.mark.parametrize("family", ["gemma3_text", "llama"])
def test_a_file_generates_what_the_module_does(family: str) -> None:
    model, prompt = build(family), prompt_of(40)
    wanted = continued(Decoder(model, 128, 16, cache_bits=8), prompt, 16, 64)
    program = lower(model, ["xnnpack"], context=128, chunk=16, cache_bits=8).program
    content = program.buffer
    assert continued(delegatekit.load(content)["forward"], prompt, 16, 64) == wanted
    assert continued(in_stock(content), prompt, 16, 64) == wanted
    # What computes is the backend: the runtime only rounds the new numbers.
    assert delegatekit.report(program).shares.runtime.macs == 0


@pytest.mark.sweep
@pytest.mark.parametrize("backend", ["coreml", "qnn", "reference", "vulkan"])
def test_other_backends_compute_the_same(backend: str) -> None:
    model = build("llama")
    tokens = text_of(model, prompt_of(1), 40)
    # QNN's sizes are fixed.
    program = lower(model, [backend], context=64, chunk=1 if backend == "qnn" else 16, cache_bits=8).program
    found, wanted, exact = (
        logits_of(forward, tokens)
        for forward in (
            delegatekit.load(program.buffer)["forward"],
            Decoder(model, 64, cache_bits=8),
            Decoder(model, 64),
        )
    )
    # A number of other rounding goes to the next step where it is between two: never by more than the steps do.
    assert (found - wanted).norm() < (wanted - exact).norm()
    assert delegatekit.report(program).shares.runtime.macs == 0


def test_a_cache_takes_a_quarter() -> None:
    small, plain = (Decoder(build("llama"), 64, cache_bits=bits).caches[0] for bits in (8, None))
    sizes = [sum(buffer.nbytes for buffer in cache.buffers()) for cache in (small, plain)]
    # A scale for each 16 integers.
    assert sizes[0] == sizes[1] * (16 + 4) // (16 * 4)
    small.keys += 1
    small.reset()
    assert all(not buffer.any() for buffer in small.buffers())


def test_what_is_not_made_is_refused() -> None:
    with pytest.raises(DelegateKitError, match="caches of 4 bits are not made"):
        Decoder(build("llama"), 64, cache_bits=4)
    with pytest.raises(DelegateKitError, match="caches of 8 bits are not fused"):
        Decoder(build("llama"), 64, cache_bits=8, fused=True)
