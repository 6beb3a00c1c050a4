"""Models of an encoder and a decoder beside transformers' own: eager, lowered, in ExecuTorch's runtime, as text."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import (
    build,
    build_pair,
    continued_behind,
    prompt_of,
    save_tokenizer,
    source_of,
    text_behind,
)

import delegatekit
from delegatekit_api import DelegateKitError
from delegatekit_llm import ENCODER_DECODERS, Encoder, Generation, Generator, TextDecoder, lower
from delegatekit_llm.lowering import check_against_model

COUNT = 64


def _start(model: Any) -> list[int]:
    return [int(model.config.decoder_start_token_id)]


@pytest.mark.sweep
@pytest.mark.parametrize("family", sorted(ENCODER_DECODERS))
def test_a_family_generates_what_transformers_does(family: str) -> None:
    model, source = build_pair(family), source_of(family)
    wanted = text_behind(model, source, COUNT)
    encoder, decoder = Encoder(model), TextDecoder(model, context=96, chunk=16)
    assert continued_behind(encoder, decoder, source, COUNT, _start(model)) == wanted
    # The model is as it was.
    assert model.config._attn_implementation == "eager" and text_behind(model, source, 4) == wanted[:4]


@pytest.mark.parametrize("family", sorted(ENCODER_DECODERS))
def test_the_logits_of_any_text_are_those_of_the_model(family: str) -> None:
    model, source, text = build_pair(family), source_of(family), prompt_of(80)
    decoder = TextDecoder(model, context=96, chunk=32, all_logits=True)
    with torch.no_grad():
        wanted = model(source, decoder_input_ids=text, use_cache=False).logits
        states = Encoder(model)(source)
        parts = [decoder(text[:, start : start + 32], states, torch.tensor([start])) for start in range(0, 80, 32)]
        # From a smaller position on, what was there is forgotten.
        again = decoder(text[:, 20:40], states, torch.tensor([20]))
    # The same sums in other orders, as `check_against_model` allows; another position's bias or key would change logits
    # by as much as they are.
    bound = 64 * torch.finfo(wanted.dtype).eps * len(decoder.caches) * float(wanted.abs().max())
    torch.testing.assert_close(torch.cat(parts, 1), wanted, rtol=0, atol=bound)
    torch.testing.assert_close(again, wanted[:, 20:40], rtol=0, atol=bound)
    assert float((wanted[0, 1:] - wanted[0, :-1]).abs().amax(1).min()) > 8 * bound


def _in_stock(content: bytes) -> list[Any]:
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(content)
    methods = [program.load_method(name) for name in ("encoder", "text_decoder")]
    # The runtime reads the content where it is: it must live as long as the methods.
    return [lambda *inputs, method=method, held=content: method.execute(list(inputs))[0].clone() for method in methods]


def _equal_in_all_runtimes(family: str, **settings: Any) -> None:
    model, source = build_pair(family), source_of(family)
    wanted = text_behind(model, source, COUNT)
    content = lower(model, ["xnnpack"], context=96, **settings).program.buffer
    ours = delegatekit.load(content)
    for encoder, decoder in ((ours["encoder"], ours["text_decoder"]), _in_stock(content)):
        assert continued_behind(encoder, decoder, source, COUNT, _start(model)) == wanted


@pytest.mark.parametrize("family", ["t5", "whisper"])
def test_the_file_generates_what_transformers_does(family: str) -> None:
    _equal_in_all_runtimes(family)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(ENCODER_DECODERS))
@pytest.mark.parametrize("settings", [{"chunk": 16}, {"fused": True}], ids=["chunk", "fused"])
def test_files_of_other_settings_generate_the_same(family: str, settings: dict[str, Any]) -> None:
    if "fused" in settings:
        _fused(family)
    else:
        _equal_in_all_runtimes(family, **settings)


def _fused(family: str) -> None:
    model, source = build_pair(family), source_of(family)
    if "t5" in family:
        with pytest.raises(DelegateKitError, match="has no attention that the fused operator computes"):
            lower(model, ["xnnpack"], context=96, fused=True)
        return
    program = delegatekit.load(lower(model, ["xnnpack"], context=96, fused=True).program.buffer)
    found = continued_behind(program["encoder"], program["text_decoder"], source, COUNT, _start(model))
    assert found == text_behind(model, source, COUNT)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["t5", "whisper"])
@pytest.mark.parametrize("backend", ["coreml", "qnn", "reference", "vulkan"])
def test_other_backends_generate_the_same(family: str, backend: str) -> None:
    model, source = build_pair(family), source_of(family)
    # QNN's sizes are fixed: the encoder of tokens has sizes that change.
    if (family, backend) == ("t5", "qnn"):
        pytest.skip("QNN takes fixed sizes only")
    # T5's sums of squares are beyond float16, which is Core ML's default.
    options = {"coreml": {"precision": "float32"}} if backend == "coreml" else None
    program = delegatekit.load(lower(model, [backend], context=96, options=options).program.buffer)
    found = continued_behind(program["encoder"], program["text_decoder"], source, 32, _start(model))
    assert found == text_behind(model, source, 32)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(ENCODER_DECODERS))
@pytest.mark.parametrize("settings", [{"scheme": "int8-dynamic"}, {"embedding_bits": 8}], ids=["int8", "embedding"])
def test_integer_weights_compute_what_the_module_does(family: str, settings: dict[str, Any]) -> None:
    exact, source, text = build_pair(family), source_of(family), prompt_of(24)
    model = lower(build_pair(family), ["xnnpack"], context=96, **settings)
    assert (model.quantization is not None) == ("scheme" in settings)
    program = delegatekit.load(model.program.buffer)
    found = _logits(program["encoder"], program["text_decoder"], source, text)
    modules: Any = model.module
    wanted = _logits(modules["encoder"], modules["text_decoder"], source, text)
    plain = _logits(Encoder(exact), TextDecoder(exact, 96), source, text)
    # As for decoders: never by more than the steps of the integers change it.
    assert 0 < (found - wanted).norm() < (wanted - plain).norm()


def _logits(encoder: Any, decoder: Any, source: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        states = encoder(source)
        return torch.stack(
            [decoder(text[:, at : at + 1], states, torch.tensor([at]))[0, -1] for at in range(text.shape[1])]
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as save_pretrained leaves it: a T5 with a tokenizer."""
    place = tmp_path_factory.mktemp("models") / "tiny-t5"
    build_pair("t5", vocab_size=save_tokenizer(place)).save_pretrained(place)
    return place


def test_from_a_folder_to_text_on_the_command_line(cli: Any, folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM

    settings = ("--context", "64", "--source-context", "48")
    printed = cli("lower-llm", str(folder), "-b", "xnnpack", *settings).out
    file = tmp_path / "tiny-t5" / "tiny-t5.pte"
    assert "try it: delegatekit generate tiny-t5/tiny-t5.pte" in printed
    generator, prompt = Generator(file), "the file of a program"
    tokens = generator.vocabulary.encode(prompt)
    wanted = text_behind(AutoModelForSeq2SeqLM.from_pretrained(folder), torch.tensor([tokens]), 12)
    told: list[Generation] = []
    text = generator.generate(prompt, tokens=12, told=told.append)
    assert told[0].tokens == wanted and told[0].prompt == tokens and text == generator.vocabulary.decode(wanted)
    assert cli("generate", str(file), prompt, "-n", "12").out == f"{text}\n"
    # A beginning of its own is given token by token.
    program = generator.program
    told.clear()
    generator.generate(prompt, tokens=8, start=["<pad>", 5, 6], told=told.append)
    states = program["encoder"](torch.tensor([tokens]))
    for at, token in enumerate([0, 5, 6]):
        logits = program["text_decoder"](torch.tensor([[token]]), states, torch.tensor([at]))
    assert told[0].tokens[0] == int(logits[0, -1].argmax())
    constants = {name: program[name]() for name in program if name not in ("encoder", "text_decoder")}
    assert constants == {
        "get_max_seq_len": 1,
        "get_max_context_len": 64,
        "get_max_source_len": 48,
        "get_vocab_size": len(json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]),
        "decoder_start_token_id": 0,
        "get_eos_ids": [2],
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": False,
    }
    said = cli("generate", str(file), "a", "--stock", code=1).err
    assert "ExecuTorch's runners in Python take language models with a method forward" in said
    with pytest.raises(DelegateKitError, match="the prompt has 49 tokens, and the encoder 48"):
        generator.generate([5] * 49)
    with pytest.raises(DelegateKitError, match="the prompt is not a text"):
        generator.generate(torch.zeros(1, 20, 80))
    with pytest.raises(DelegateKitError, match="the tokenizer has no token '<nothing>'"):
        generator.generate(prompt, start=["<nothing>"])
    generator.generate(prompt, tokens=200, told=told.append)
    assert told[-1].ended_by in ("context", "stop") and len(told[-1].tokens) <= 64


def test_a_recording_becomes_text(cli: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForSpeechSeq2Seq, WhisperFeatureExtractor

    folder = tmp_path / "tiny-whisper"
    build_pair("whisper", vocab_size=save_tokenizer(folder), max_source_positions=50).save_pretrained(folder)
    # A second of sound: 100 frames, of which the encoder makes 50 states.
    extractor = WhisperFeatureExtractor(feature_size=20, chunk_length=1)
    extractor.save_pretrained(folder)
    sound = np.sin(np.arange(12000, dtype=np.float32) / 9) / 2
    samples = (sound * 32767).astype("<i2")
    recording = tmp_path / "sound.wav"
    _write(recording, samples, 16000)
    (tmp_path / "out").mkdir()
    cli("lower-llm", str(folder), "-b", "xnnpack", "--context", "64", "-o", "out/net.pte")
    printed = cli("generate", "out/net.pte", str(recording), "-n", "12")
    model = AutoModelForSpeechSeq2Seq.from_pretrained(folder)
    source = extractor(samples / np.float32(32768), sampling_rate=16000, return_tensors="pt").input_features
    generator = Generator(tmp_path / "out" / "net.pte")
    told: list[Generation] = []
    assert printed.out == generator.generate(source, tokens=12, told=told.append) + "\n"
    assert told[0].tokens == text_behind(model, source, 12)
    assert "\nspectrogram: " in f"\n{printed.err}"
    with pytest.raises(DelegateKitError, match="the prompt is not a spectrogram"):
        generator.generate("a text")
    with pytest.raises(DelegateKitError):
        generator.generate(source[:, :, :99])
    _write(recording, samples, 8000)
    assert "has 8000 samples a second, and the model takes 16000" in _refused(cli, str(recording))
    recording.write_bytes(b"RIFF")
    assert "is no .wav that is read: it ends too early" in _refused(cli, str(recording), code=1)
    assert "there is no recording" in _refused(cli, "nothing.wav")
    (tmp_path / "out" / "preprocessor_config.json").unlink()
    assert "has no processor_config.json or preprocessor_config.json" in _refused(cli, str(recording))


def _refused(cli: Any, recording: str, code: int = 2) -> str:
    said: str = cli("generate", "out/net.pte", recording, code=code).err
    return said


def _write(place: Path, samples: Any, rate: int) -> None:
    with wave.open(str(place), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())


def test_a_family_that_is_not_known_is_refused_or_compared() -> None:
    model = build_pair("blenderbot-small")
    with pytest.raises(DelegateKitError, match="model type 'blenderbot-small' is not one of the known families: bart"):
        lower(model, ["reference"], context=32)
    encoder, decoder = Encoder(model, known_family=False), TextDecoder(model, 32, 8, known_family=False)
    check_against_model(decoder, encoder)
    for layer in decoder.caches:
        layer.window = 2
    with pytest.raises(DelegateKitError, match="computes something else: its logits differ by"):
        check_against_model(decoder, encoder)


@pytest.mark.parametrize(
    ("family", "settings", "said"),
    [
        ("t5", {"source_context": 0}, "source_context is 0"),
        ("bart", {"source_context": 129}, "source_context is 129, more than the positions that the model has: 128"),
        ("bart", {"context": 129}, "context is 129, more than the positions that the model has: 128"),
        ("whisper", {"context": 129}, "context is 129, more than the positions that the model has: 128"),
        ("whisper", {"source_context": 20}, "source_context is 20"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(family: str, settings: dict[str, int], said: str) -> None:
    with pytest.raises(DelegateKitError, match=said):
        lower(build_pair(family), ["reference"], **{"context": 64, **settings})
    with pytest.raises(DelegateKitError, match="source_context is 16, and the model has no encoder"):
        lower(build("llama"), ["reference"], context=64, source_context=16)
