"""A tiny Llama with a static KV cache in buffers: one file, methods `prefill` and `decode`, generates what eager does.

Our engine keeps buffers that methods share as one over a loaded program, by the manifest's `shared_state`. In the stock
runtime the same comes from their place: memory_id 2, at equal offsets in all methods, and one set of arenas for all
methods of a program (the Python binding always, C++ with `share_memory_arenas`). Loading a method there writes the
initial values, so all methods are loaded before the first call.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from referee import StockProgram

import delegatekit
from delegatekit.pte import read, schema

pytest.importorskip("transformers", reason="transformers is not installed")
models = pytest.importorskip("delegatekit_conformance.models")

LENGTH, LONGEST, TOKENS = 64, 32, 32
Step = Callable[[torch.Tensor], torch.Tensor]


class Generated(NamedTuple):
    """Tokens, and the margin of each over the next best."""

    tokens: list[int]
    margins: list[float]


def generate(prefill: Step, decode: Step, prompt: torch.Tensor) -> Generated:
    """Greedy generation of `TOKENS` tokens after the prompt (1, T)."""
    tokens, margins, logits = [], [], prefill(prompt)
    for _ in range(TOKENS):
        top = logits[0].topk(2)
        tokens.append(int(top.indices[0]))
        margins.append(float(top.values[0] - top.values[1]))
        logits = decode(torch.tensor([tokens[-1:]]))
    return Generated(tokens, margins)


@dataclass
class StockMethod:
    """A method of the stock runtime as a function of tensors."""

    method: Any
    #: Keeps the file's bytes alive.
    program: StockProgram

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.method(inputs)[0]
        return result


def load_stock(data: bytes) -> tuple[StockMethod, StockMethod]:
    """`prefill` and `decode`."""
    stock = StockProgram(data)
    return StockMethod(stock.method("prefill"), stock), StockMethod(stock.method("decode"), stock)


def prompts() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(6)
    return [torch.randint(0, 256, (1, length), generator=generator) for length in (8, LONGEST, 2, 8)]


@pytest.fixture(scope="module")
def module() -> Any:
    return models.tiny_llama(LENGTH)


@pytest.fixture(scope="module")
def eager(module: Any) -> list[Generated]:
    found = []
    with torch.no_grad():
        for prompt in prompts():
            module.reset()
            found.append(generate(module, module, prompt))
    module.reset()
    return found


@pytest.fixture(scope="module")
def exported(module: Any) -> dict[str, torch.export.ExportedProgram]:
    methods: dict[str, torch.export.ExportedProgram] = module.export_methods(LONGEST)
    return methods


@pytest.fixture(scope="module", params=[[], ["xnnpack"]], ids=["runtime", "xnnpack"])
def data(request: pytest.FixtureRequest, module: Any, exported: dict[str, torch.export.ExportedProgram]) -> bytes:
    """The file. The writer takes the buffers' values of this moment, so the cache is emptied first."""
    module.reset()
    buffer: bytes = delegatekit.lower(exported, backends=request.param).buffer
    return buffer


def test_no_token_is_a_tie(eager: list[Generated]) -> None:
    """Rounding moves these logits by some 1e-7; every choice has a larger margin, so equal tokens are significant."""
    assert min(min(generated.margins) for generated in eager) > 1e-3
    assert all(len(set(generated.tokens)) > 4 for generated in eager)
    assert len({tuple(generated.tokens) for generated in eager}) == len(eager)


def test_our_engine_generates_the_same_tokens(data: bytes, eager: list[Generated]) -> None:
    loaded = delegatekit.load(data)
    for prompt, want in zip(prompts(), eager, strict=True):
        loaded.reset()
        got = generate(loaded["prefill"], loaded["decode"], prompt)
        assert got.tokens == want.tokens
        torch.testing.assert_close(got.margins, want.margins, atol=1e-5, rtol=0)


def test_the_stock_runtime_generates_the_same_tokens(data: bytes, module: Any, eager: list[Generated]) -> None:
    prefill, decode = load_stock(data)
    for prompt, want in zip(prompts(), eager, strict=True):
        for name in module.state:
            prefill.method.get_attribute(name).zero_()
        got = generate(prefill, decode, prompt)
        assert got.tokens == want.tokens
        torch.testing.assert_close(got.margins, want.margins, atol=1e-5, rtol=0)


@pytest.mark.parametrize("runtime", ["engine", "stock"])
def test_a_second_prompt_may_follow_without_a_reset(data: bytes, module: Any, runtime: str) -> None:
    """A chat: a second prefill continues after the tokens in the cache."""
    if runtime == "engine":
        loaded = delegatekit.load(data)
        prefill, decode = loaded["prefill"], loaded["decode"]
    else:
        prefill, decode = load_stock(data)
    first, second = torch.arange(10, 16).view(1, 6), torch.arange(40, 44).view(1, 4)
    module.reset()
    with torch.no_grad():
        for method, tokens in ((prefill, first), (decode, first[:, :1]), (prefill, second)):
            torch.testing.assert_close(method(tokens), module(tokens), atol=1e-5, rtol=0)
    assert int(module.count_0) == 11


def test_weights_are_stored_once(data: bytes, module: Any) -> None:
    """Constants and named data of the file, over both methods, are the bytes of the parameters and little else."""
    file = read(data)
    constants = (file.program.segments or ())[0].size
    named = sum(len(value) for name, value in file.named_data.items() if name != "delegatekit.manifest")
    # Equal tensors are one: the weights of all norms are 1.
    weights = {bytes(p.detach().numpy()) for p in module.parameters()}
    distinct = sum(map(len, weights))
    assert distinct > 700_000
    # Beside them: frequencies of the rotary embedding, positions and limits of masks.
    assert distinct <= constants + named <= distinct + 1024
    # The cache's initial value is stored once, too; the rest is instructions and blobs.
    state = sum(tensor.numel() * tensor.element_size() for tensor in module.state.values())
    assert len(data) < distinct + state + 120_000


def test_the_cache_is_one_over_the_methods_and_starts_empty(data: bytes, module: Any) -> None:
    file = read(data)
    for plan in file.program.execution_plan or ():
        tensors = [value.val for value in plan.values or () if isinstance(value.val, schema.Tensor)]
        named = {t.extra_tensor_info.fully_qualified_name for t in tensors if t.extra_tensor_info is not None}
        assert named >= set(module.state)


def test_a_sliding_window_cache_is_refused() -> None:
    """It counts its tokens in a Python number, which torch.export would fix."""
    from transformers import MistralConfig, MistralForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    configuration = MistralConfig(vocab_size=10, num_key_value_heads=1, sliding_window=4, **sizes)
    with pytest.raises(ValueError, match="sliding-window"):
        models.CachedDecoder(MistralForCausalLM(configuration), 8)


@pytest.mark.slow
def test_the_example_runs() -> None:
    script = Path(__file__).parents[1] / "examples" / "generate.py"
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert "all tokens are the same" in result.stdout
