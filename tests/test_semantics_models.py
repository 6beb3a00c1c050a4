"""Models whose sizes change, that branch, loop, keep state or scatter: both engines agree with eager on one file.

Fast on small configurations; the full ones, among them Whisper-tiny at its real size, are marked slow.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from referee import StockProgram

import delegatekit

pytest.importorskip("transformers", reason="transformers is not installed")
models = pytest.importorskip("delegatekit_conformance.models")

#: torch.export says so of nn.LSTM, which gathers its weights in a list while it runs.
pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights")


@dataclass(frozen=True)
class Most:
    """Upper bounds with XNNPACK: delegates, and kernel calls outside them (calls that compute sizes not counted)."""

    delegates: int
    kernels: int


#: What stays outside XNNPACK: embeddings, masks made of integers and bools (their sizes change), what indexes or
#: scatters, and the copies of control flow.
EXPECTED = {
    "whisper-tiny encoder": Most(1, 0),
    "whisper-tiny decoder, any length": Most(1, 25),
    "mobilevit": Most(1, 0),
    "mobilevit, any batch": Most(1, 0),
    "qwen": Most(1, 1),
    "qwen, any length": Most(1, 25),
    "sentences, any batch and length": Most(2, 25),
    "lstm tagger": Most(1, 1),
    "lstm tagger, any batch": Most(3, 4),
    "lstm tagger as a loop, any length": Most(2, 15),
    "early exit": Most(2, 4),
    "u-net": Most(1, 0),
    "u-net, any size": Most(1, 0),
    "experts": Most(3, 14),
    "experts, any length": Most(3, 16),
}


def close(result: torch.Tensor, eager: torch.Tensor, tolerance: float) -> None:
    """float32 rounding, relative to the largest value."""
    torch.testing.assert_close(result, eager, rtol=0, atol=float(tolerance * eager.abs().max()))


@functools.cache
def small(name: str) -> tuple[Any, torch.export.ExportedProgram]:
    """The small configuration and its exported program."""
    case = models.build_model(name, small=True)
    return case, case.export()


def check(case: Any, exported: torch.export.ExportedProgram, backends: list[str], tolerance: float) -> None:
    program = delegatekit.lower(exported, backends=backends)
    data = program.buffer
    engine, stock = delegatekit.load(data)["forward"], StockProgram(data).method()
    # The first call comes again after the others, whose sizes and branches must have left no state.
    for inputs in (case.inputs, *case.calls, case.inputs):
        with torch.no_grad():
            eager = case.module(*inputs)
        close(engine(*inputs), eager, tolerance)
        close(stock(inputs)[0], eager, tolerance)
    if backends:
        method = delegatekit.report(program).methods[0]
        sizes = ("aten::sym_size", "executorch_prim::")
        kernels = sum(count for name, count in method.fallback.items() if not name.startswith(sizes))
        assert len(method.delegates) <= EXPECTED[case.name].delegates
        assert kernels <= EXPECTED[case.name].kernels


def test_all_models_are_here() -> None:
    assert set(EXPECTED) == set(models.SEMANTIC_MODELS)


def test_pretrained_models_have_no_small_configuration() -> None:
    with pytest.raises(ValueError, match="minilm is pretrained: it has no small configuration"):
        models.build_model("minilm", small=True)


@pytest.mark.sweep
@pytest.mark.parametrize("backends", [[], ["xnnpack"]], ids=["runtime", "xnnpack"])
@pytest.mark.sweep
@pytest.mark.parametrize("name", EXPECTED)
def test_small_models_agree_with_eager(name: str, backends: list[str]) -> None:
    check(*small(name), backends, 5e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_full_models_agree_with_eager(name: str) -> None:
    case = models.build_model(name)
    check(case, case.export(), ["xnnpack"], 1e-5)


def test_the_calls_of_the_early_exit_take_both_ways() -> None:
    case, _ = small("early exit")
    with torch.no_grad():
        early = [bool(case.module.first(*call)[1].max() > case.module.sure) for call in (case.inputs, *case.calls)]
    assert early == [True, False, True, False]


def test_some_tokens_of_the_experts_find_no_room() -> None:
    case, _ = small("experts")
    (tokens,) = case.inputs
    with torch.no_grad():
        passed = (case.module(tokens) == tokens).all(1)
    assert 0 < int(passed.sum()) < len(tokens)


def test_torch_export_itself_unrolls_an_lstm() -> None:
    """The tagger of any length is a loop because torch.export accepts no LSTM whose length changes."""
    case, _ = small("lstm tagger")
    length = torch.export.Dim("length", min=1, max=12)
    with pytest.raises(Exception, match=r"specialized it to be a constant \(6\)"):
        torch.export.export(case.module, case.inputs, dynamic_shapes={"words": {1: length}}, strict=False)


@pytest.mark.parametrize("backends", [[], ["xnnpack"]], ids=["runtime", "xnnpack"])
def test_whisper_writes_the_same_tokens(backends: list[str]) -> None:
    """Encoder and decoder as two methods of one file; the decoder takes all tokens so far, without a cache."""
    encoder, encode = small("whisper-tiny encoder")
    decoder, decode = small("whisper-tiny decoder, any length")
    data = delegatekit.lower({"encode": encode, "decode": decode}, backends=backends).buffer
    loaded, stock = delegatekit.load(data), StockProgram(data)
    spectrogram = encoder.inputs[0]

    def transcribe(encode: object, decode: object) -> list[int]:
        assert callable(encode) and callable(decode)
        tokens = torch.tensor([[3]])
        with torch.no_grad():
            states = encode(spectrogram)
            for _ in range(12):
                top = decode(tokens, states)[0, -1].topk(2)
                assert float(top.values[0] - top.values[1]) > 1e-4  # no tie, which rounding could break
                tokens = torch.cat([tokens, top.indices[:1].view(1, 1)], 1)
        return tokens[0].tolist()

    eager = transcribe(encoder.module, decoder.module)
    assert len(set(eager)) > 1
    assert transcribe(loaded["encode"], loaded["decode"]) == eager
    methods = [stock.method(name) for name in ("encode", "decode")]
    assert transcribe(*(lambda *inputs, m=method: m(inputs)[0].clone() for method in methods)) == eager
