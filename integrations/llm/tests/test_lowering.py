"""Lowered language models: the file's tokens are transformers', in our engine and in ExecuTorch's runtime."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import build, continued, in_stock, logits_of, prompt_of, text_of

import delegatekit
from delegatekit_api import DelegateKitError, FormatError
from delegatekit_llm import FAMILIES, Decoder, lower
from delegatekit_llm.folders import load_config, load_model, mapped_dtype

COUNT = 64


@pytest.mark.sweep
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_file_generates_what_transformers_does(family: str) -> None:
    model, prompt = build(family), prompt_of(40)
    wanted = text_of(model, prompt, COUNT)
    content = lower(model, ["xnnpack"], context=128, chunk=16).program.buffer
    assert continued(delegatekit.load(content)["forward"], prompt, 16, COUNT) == wanted
    assert continued(in_stock(content), prompt, 16, COUNT) == wanted


@pytest.mark.sweep
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"gemma2", "mistral"}))
def test_fused_attention_generates_what_transformers_does(family: str, tmp_path: Path) -> None:
    model, prompt = build(family), prompt_of(40)
    wanted = text_of(model, prompt, COUNT)
    content = lower(model, ["xnnpack"], context=128, chunk=16, fused=True).program.buffer
    assert continued(delegatekit.load(content)["forward"], prompt, 16, COUNT) == wanted
    assert _in_stock_with_operators(content, prompt, tmp_path) == wanted


def _in_stock_with_operators(content: bytes, prompt: torch.Tensor, place: Path) -> list[int]:
    """The tokens that ExecuTorch's runtime generates, in a process with its operators for language models."""
    (place / "model.pte").write_bytes(content)
    torch.save(prompt, place / "prompt.pt")
    code = (
        "import torch\n"
        "from executorch.extension.llm.custom_ops import custom_ops\n"
        "from small_models import continued, in_stock\n"
        "from test_lowering import COUNT\n"
        "content = open('model.pte', 'rb').read()  # the runtime keeps no copy\n"
        "print(continued(in_stock(content), torch.load('prompt.pt'), 16, COUNT))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=True, env=_with_tests()
    ).stdout
    found: list[int] = json.loads(said.splitlines()[-1])
    return found


def _with_tests() -> dict[str, str]:
    """This process's environment, in which the tests' modules can be imported."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}


def test_attention_that_cannot_be_fused_is_told() -> None:
    with pytest.raises(DelegateKitError, match="Gemma2ForCausalLM: has no attention that the fused operator computes"):
        lower(build("gemma2"), ["reference"], context=64, fused=True)
    decoder = Decoder(build("gemma3_text"), context=64, chunk=16, fused=True)
    assert {cache.fused for cache in decoder.caches} == {True, False}


@pytest.mark.sweep
@pytest.mark.parametrize("family", ["gemma3_text", "llama", "mistral"])
@pytest.mark.parametrize("backend", ["coreml", "qnn", "reference", "vulkan"])
def test_other_backends_generate_the_same(family: str, backend: str) -> None:
    model, prompt = build(family), prompt_of(40)
    # QNN's sizes are fixed.
    chunk = 1 if backend == "qnn" else 16
    program = lower(model, [backend], context=96, chunk=chunk).program
    assert continued(delegatekit.load(program.buffer)["forward"], prompt, chunk, 32) == text_of(model, prompt, 32)
    assert delegatekit.report(program).shares.runtime.macs == 0


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int8-dynamic-int4"])
def test_quantized_weights_compute_what_the_quantized_module_does(scheme: str) -> None:
    float_model = build("llama")
    model = lower(float_model, ["xnnpack"], context=96, chunk=16, scheme=scheme)
    assert model.quantization is not None and len(model.quantization.quantized) == 7 * 3 + 1
    tokens = text_of(float_model, prompt_of(1), COUNT)
    found, wanted, exact = (
        logits_of(forward, tokens)
        for forward in (delegatekit.load(model.program.buffer)["forward"], model.module, Decoder(float_model, 96))
    )
    # Sums in another order move a number to the next step where it is between two, and what follows with it: never by
    # more than the steps themselves do.
    assert (found - wanted).norm() < (wanted - exact).norm()


@pytest.mark.parametrize(("bits", "target"), [(4, "ios18"), (6, "ios18"), (8, "ios17")])
def test_weights_in_tables_generate_what_the_quantized_module_does(bits: int, target: str) -> None:
    options = {"coreml": {"target": target, "precision": "float32"}}
    model = lower(build("llama"), ["coreml"], context=128, chunk=16, scheme=f"{bits}-bit-tables", options=options)
    assert model.quantization is not None and len(model.quantization.quantized) == 1 + 7 * 3 + 1
    prompt = prompt_of(40)
    with torch.no_grad():
        wanted = continued(model.module, prompt, 16, COUNT)
    assert continued(delegatekit.load(model.program.buffer)["forward"], prompt, 16, COUNT) == wanted


def test_weights_in_tables_are_near_in_half_precision() -> None:
    float_model, options = build("llama"), {"coreml": {"target": "ios18"}}
    model = lower(float_model, ["coreml"], context=96, chunk=16, scheme="4-bit-tables", options=options)
    tokens = text_of(float_model, prompt_of(1), COUNT)
    found, wanted, exact = (
        logits_of(forward, tokens)
        for forward in (delegatekit.load(model.program.buffer)["forward"], model.module, Decoder(float_model, 96))
    )
    # The tables are those of the file: only the activations of three layers are rounded, to 11 bits.
    assert (found - wanted).norm() < 3 * 2.0**-7 * wanted.norm() < (wanted - exact).norm()


def test_a_runner_is_told_what_it_asks(folder: Path) -> None:
    model = lower(folder, ["reference"], context=96, chunk=16)
    program = delegatekit.load(model.program.buffer)
    tokenizer = json.loads(model.files["tokenizer.json"])
    told = {name: program[name]() for name in program if name != "forward"}
    assert told == {
        "get_max_seq_len": 16,
        "get_max_context_len": 96,
        "get_vocab_size": len(tokenizer["model"]["vocab"]),
        "get_bos_id": 1,
        "get_eos_ids": [2],
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": True,
    }


def test_beyond_the_context_nothing_is_written(file: Path) -> None:
    forward = delegatekit.load(file)["forward"]
    forward(torch.zeros(1, 16, dtype=torch.int64), torch.tensor([0]))
    before = {name: value.clone() for name, value in forward.state.items()}
    with pytest.raises(DelegateKitError):
        forward(torch.ones(1, 1, dtype=torch.int64), torch.tensor([96]))
    assert before and all(torch.equal(value, before[name]) for name, value in forward.state.items())


def test_two_sessions_know_nothing_of_each_other(file: Path) -> None:
    program = delegatekit.load(file)
    one, other = program.new_session()["forward"], program.new_session()["forward"]
    wanted = continued(one, prompt_of(20) % 40, 16, 8)
    continued(other, prompt_of(30) % 40, 16, 8)
    assert continued(program.new_session()["forward"], prompt_of(20) % 40, 16, 8) == wanted
    one.reset()
    assert continued(one, prompt_of(20) % 40, 16, 8) == wanted


def test_calls_of_one_token_only() -> None:
    model = build("llama")
    content = lower(model, ["xnnpack"], context=64, chunk=1).program.buffer
    assert continued(delegatekit.load(content)["forward"], prompt_of(5), 1, 8) == text_of(model, prompt_of(5), 8)


def test_weights_in_a_data_file(folder: Path, tmp_path: Path) -> None:
    written = lower(folder, ["xnnpack"], context=32, external=True).save(tmp_path / "net.pte")
    names = {path.name for path in written}
    assert {"net.pte", "net.ptd", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} <= names
    assert (tmp_path / "net.ptd").stat().st_size > (tmp_path / "net.pte").stat().st_size
    assert delegatekit.load(tmp_path / "net.pte")["forward"](
        torch.zeros(1, 2, dtype=torch.int64), torch.tensor([0])
    ).shape


def test_another_models_tokenizer_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    model = lower(folder, ["reference"], context=32)
    model.save(tmp_path / "one.pte")
    model.save(tmp_path / "two.pte")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DelegateKitError, match=r"tokenizer\.json: is there already, of another model"):
        model.save(tmp_path / "three.pte")
    assert not (tmp_path / "three.pte").exists()


def _without_weights(folder: Path) -> None:
    for file in folder.glob("*.safetensors"):
        file.unlink()


def _without_a_shard(folder: Path) -> None:
    next(iter(sorted(folder.glob("*.safetensors")))).unlink()


def _damaged(folder: Path) -> None:
    file = next(iter(sorted(folder.glob("*.safetensors"))))
    file.write_bytes(file.read_bytes()[:1000])


def _of_another_family(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "mamba"}), "utf-8")


def _no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{", "utf-8")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without_weights, "has no \\*.safetensors"),
        (_without_a_shard, "cannot be read: |has no weights for "),
        (_damaged, "cannot be read: "),
        (_of_another_family, "model type 'mamba' is not one of the known families"),
        (_no_json, "cannot be read: "),
        (shutil.rmtree, "is not a folder"),
    ],
)
def test_folders_that_are_no_model_are_refused(folder: Path, tmp_path: Path, damage: Any, said: str) -> None:
    place = tmp_path / "copy"
    shutil.copytree(folder, place)
    damage(place)
    with pytest.raises(DelegateKitError, match=said):
        lower(place, ["reference"], context=32)


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of any size stay in their files."""
    monkeypatch.setattr("delegatekit_llm.folders.LARGE", 0)
    monkeypatch.setattr("delegatekit_llm.mapped._MAPPED", 64)


@pytest.mark.parametrize("family", ["gemma", "llama", "phi"])
def test_a_large_model_computes_what_it_does_in_memory(family: str, tmp_path: Path, request: Any) -> None:
    build(family).bfloat16().save_pretrained(tmp_path)
    tokens = prompt_of(12)
    loaded = [load_model(tmp_path, load_config(tmp_path))]
    request.getfixturevalue("mapped")
    loaded.append(load_model(tmp_path, load_config(tmp_path)))
    small, large = ({item.dtype for item in model.parameters() if item.numel() > 64} for model in loaded)
    assert small == {torch.float32} and torch.bfloat16 in large
    for bits in (None, 8):
        one, other = (Decoder(model, 48, embedding_bits=bits)(tokens, torch.tensor([0])) for model in loaded)
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("backend", "scheme", "more"),
    [
        ("xnnpack", "int8-dynamic-int4", {}),
        ("vulkan", "int4-weight-only", {"chunk": 1}),
        ("vulkan", "int8-weight-only", {}),
        ("vulkan", None, {}),
        ("coreml", "int4-weight-only", {"options": {"coreml": {"target": "ios18"}}}),
        ("coreml", "4-bit-tables", {"options": {"coreml": {"target": "ios18"}}}),
        ("coreml", "6-bit-tables", {}),
        ("coreml", "int8-weight-only", {}),
        ("coreml", None, {}),
    ],
)
def test_a_large_model_gives_the_same_data_file(
    backend: str, scheme: str | None, more: Any, tmp_path: Path, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("llama").bfloat16().save_pretrained(tmp_path / "model")
    monkeypatch.setattr("delegatekit_toolkit.later._ROOM", 0)
    settings: dict[str, Any] = {"context": 48, "scheme": scheme, "embedding_bits": 8, "external": True, **more}
    one = lower(tmp_path / "model", [backend], **settings)
    request.getfixturevalue("mapped")
    monkeypatch.setattr("delegatekit_toolkit.spilling._LEAST", 64)
    other = lower(tmp_path / "model", [backend], **settings)
    assert other.program.data_files == one.program.data_files
    assert other.quantization == one.quantization
    other.save(tmp_path / "large.pte")
    assert (tmp_path / "large.ptd").read_bytes() == one.program.data_files[""]
    inputs = prompt_of(more.get("chunk", 3)), torch.tensor([0])
    with torch.no_grad():
        assert torch.equal(other.module(*inputs), one.module(*inputs))


@pytest.mark.usefixtures("mapped")
def test_weights_of_several_types_are_loaded(tmp_path: Path) -> None:
    model: Any = build("llama").bfloat16()
    model.model.norm.float()
    model.save_pretrained(tmp_path)
    assert mapped_dtype(tmp_path) is None
    assert {item.dtype for item in load_model(tmp_path, load_config(tmp_path)).parameters()} == {torch.float32}
    model.model.norm.bfloat16()
    model.save_pretrained(tmp_path)
    assert mapped_dtype(tmp_path) is torch.bfloat16


@pytest.mark.usefixtures("mapped")
def test_a_large_model_with_a_damaged_file_is_refused(tmp_path: Path) -> None:
    build("llama").bfloat16().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not one")
    with pytest.raises(FormatError, match="cannot be read"):
        load_model(tmp_path, load_config(tmp_path))


def test_a_configuration_of_another_model_is_told(tmp_path: Path) -> None:
    build("llama").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))

    def change(**changes: int) -> None:
        (tmp_path / "config.json").write_text(json.dumps(config | changes), "utf-8")

    change(num_hidden_layers=2)
    (told,) = lower(tmp_path, ["xnnpack"], context=16).told
    assert told.startswith("9 weights of the folder are not in the model") and "model.layers.2." in told
    change(intermediate_size=80)
    with pytest.raises(FormatError, match=r"have other sizes.*has \(64, 96\), not \(64, 80\)"):
        lower(tmp_path, ["xnnpack"], context=16)
    change(num_hidden_layers="three")  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="expected int, got str"):
        lower(tmp_path, ["xnnpack"], context=16)
