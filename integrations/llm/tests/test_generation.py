"""Generating text: our engine, ExecuTorch's own runner, and the commands."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import TEXT, text_of

from delegatekit_api import DelegateKitError
from delegatekit_llm import ENCODER_DECODERS, FAMILIES, Generation, Generator, Sampling, lower
from delegatekit_llm.stock import StockGeneration, stream
from delegatekit_llm.vocabulary import GrowingText, Vocabulary

PROMPT = TEXT[:90]


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


def test_the_text_is_that_of_transformers(file: Path, model: Any) -> None:
    generator = Generator(file)
    told: list[Generation] = []
    text = generator.generate(PROMPT, tokens=32, told=told.append)
    (found,) = told
    prompt = generator.vocabulary.encode(PROMPT)
    assert len(prompt) > 16  # several calls
    assert found.tokens == text_of(model, torch.tensor([prompt]), 32)
    assert text == generator.vocabulary.decode(found.tokens) and found.ended_by == "limit"
    assert str(found).startswith(f"prompt: {len(prompt)} tokens in ") and "generation: 31 tokens in " in str(found)


def test_texts_know_nothing_of_each_other(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = Generator(file)
    made, new_session = [], generator.program.new_session

    def counted() -> Any:
        made.append(new_session())
        return made[-1]

    monkeypatch.setattr(generator.program, "new_session", counted)
    texts = [generator.generate(prompt, tokens=12) for prompt in (PROMPT, PROMPT[30:])]
    left = generator.stream(PROMPT, tokens=12)
    next(left)
    left.close()
    assert len(made) == 1
    one, other = (generator.stream(prompt, tokens=12) for prompt in (PROMPT, PROMPT[30:]))
    begun = next(one)
    assert ["".join(other), begun + "".join(one)] == texts[::-1]
    assert len(made) == 2


def test_executorch_generates_the_same_text(file: Path) -> None:
    told: list[Any] = []
    text = "".join(stream(file, file.with_name("tokenizer.json"), PROMPT, tokens=32, told=told.append))
    # It writes the special tokens, which ours leaves out.
    assert text.replace("<s>", "") == Generator(file).generate(PROMPT, tokens=32) and len(text) > 16
    prompt = len(Vocabulary(file.with_name("tokenizer.json")).encode(PROMPT))
    assert str(told[0]).startswith(f"prompt: {prompt} tokens")


def test_a_prompt_within_a_millisecond_has_no_speed() -> None:
    times = {"prompt_tokens": 20, "generated_tokens": 31, "inference_start_ms": 1000}
    fast = StockGeneration(times | {"prompt_eval_end_ms": 1000, "inference_end_ms": 1500})
    slow = StockGeneration(times | {"prompt_eval_end_ms": 1200, "inference_end_ms": 1500})
    assert str(fast) == "prompt: 20 tokens, generation: 31 tokens in 0.50 s (62.0/s)"
    assert str(slow) == "prompt: 20 tokens in 0.20 s (100.0/s), generation: 31 tokens in 0.30 s (103.3/s)"


@pytest.mark.sweep
@pytest.mark.parametrize(("backend", "chunk"), [("coreml", 16), ("qnn", 1), ("vulkan", 16)])
def test_our_delegates_generate_in_executorchs_runner(backend: str, chunk: int, folder: Path, tmp_path: Path) -> None:
    file = lower(folder, [backend], context=96, chunk=chunk).save(tmp_path / "net.pte")[-1]
    text = "".join(stream(file, tmp_path / "tokenizer.json", PROMPT, tokens=16))
    assert re.sub("</?s>", "", text) == Generator(file).generate(PROMPT, tokens=16) and len(text) > 8


def test_what_executorchs_runner_says_of_its_end_is_told(file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pte"
    broken.write_bytes(file.read_bytes()[:4000])
    with pytest.raises(DelegateKitError, match=r"ExecuTorch's runner (ended|crashed)(.|\n)*log"):
        list(stream(broken, file.with_name("tokenizer.json"), PROMPT, tokens=4))


def test_it_ends_where_the_context_does(file: Path) -> None:
    generator, told = Generator(file), list[Generation]()
    generator.generate([5] * 90, tokens=32, told=told.append)
    # The last token is not written to the cache.
    assert len(told[0].tokens) == 96 - 90 + 1 and told[0].ended_by == "context"
    assert str(told[0]).endswith("the context is full")
    generator.generate([5] * 96, tokens=32, told=told.append)
    assert len(told[1].tokens) == 1
    with pytest.raises(DelegateKitError, match="the prompt has 97 tokens, and the context 96"):
        generator.generate([5] * 97)
    with pytest.raises(DelegateKitError, match="the prompt is empty"):
        generator.generate("")


def test_tokens_that_end_a_text(file: Path) -> None:
    generator, told = Generator(file), list[Generation]()
    generator.generate(PROMPT, tokens=32, told=told.append)
    end = told[0].tokens[5]
    word = _word(file, end)
    text = generator.generate(PROMPT, tokens=32, stop=[word], told=told.append)
    first = told[0].tokens.index(end)
    assert told[1].tokens == told[0].tokens[: first + 1] and told[1].ended_by == "stop"
    assert text == generator.vocabulary.decode(told[0].tokens[:first])
    generator.ends = frozenset({end})
    assert generator.generate(PROMPT, tokens=32) == text
    with pytest.raises(DelegateKitError, match="the tokenizer has no token 'nowhere'"):
        generator.generate(PROMPT, stop=["nowhere"])


def _word(file: Path, token: int) -> str:
    known = json.loads(file.with_name("tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    return next(word for word, number in known.items() if number == token)


def test_drawn_tokens_follow_their_probabilities() -> None:
    logits = torch.tensor([0.5, 0.25, 0.15, 0.1]).log()
    choose = Sampling(temperature=1.0, seed=3).chooser()
    counts = torch.bincount(torch.tensor([choose(logits) for _ in range(4000)]), minlength=4) / 4000
    # Four standard deviations of a count of 4,000 draws at most.
    assert (counts - logits.exp()).abs().max() < 4 * (0.25 / 4000) ** 0.5
    few = Sampling(temperature=1.0, top_p=0.6, seed=3).chooser()
    assert {few(logits) for _ in range(200)} == {0, 1}
    cold = Sampling(temperature=0.01).chooser()
    assert {cold(logits) for _ in range(50)} == {0} == {Sampling().chooser()(logits)}
    one, other = (Sampling(temperature=2.0, seed=5).chooser() for _ in range(2))
    assert [one(logits) for _ in range(20)] == [other(logits) for _ in range(20)]
    for wrong in ({"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}):
        with pytest.raises(DelegateKitError, match=next(iter(wrong))):
            Sampling(**wrong)


class _Bytes:
    """A vocabulary whose tokens are the bytes of UTF-8."""

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode("utf-8", "replace")


def test_a_character_of_several_tokens_comes_as_a_whole() -> None:
    text = GrowingText(_Bytes())  # type: ignore[arg-type]
    pieces = [text.add(byte) for byte in "aé€😀b".encode()]
    assert pieces == ["a", "", "é", "", "", "€", "", "", "", "😀", "b"]
    assert text.add("é".encode()[0]) == "" and text.rest() == "�"


def test_from_a_folder_to_text_on_the_command_line(cli: Any, folder: Path, tmp_path: Path) -> None:
    printed = cli("lower-llm", str(folder), "-b", "xnnpack", "--context", "96", "--scheme", "int8-dynamic-int4").out
    made = tmp_path / "tiny-llama" / "tiny-llama.pte"
    assert (
        f"wrote {made.relative_to(tmp_path)}" in printed
        and "int8-dynamic-int4: 22 of 29 layers are quantized" in printed
    )
    assert "try it: delegatekit generate tiny-llama/tiny-llama.pte" in printed
    ours = cli("generate", str(made), PROMPT, "-n", "12")
    stock = cli("generate", str(made), PROMPT, "-n", "12", "--stock")
    assert ours.out.strip() == re.sub("</?s>", "", stock.out).strip() and len(ours.out) > 4
    assert ours.err.startswith("prompt: ") and stock.err.startswith("prompt: ")
    chat = cli("generate", str(made), "is it read?", "-n", "12", "--chat")
    assert chat.out == cli("generate", str(made), "<s>user is it read?\nruntime ", "-n", "12").out


def test_commands_refuse_what_they_cannot_do(cli: Any, folder: Path, file: Path, tmp_path: Path) -> None:
    assert "is not a folder" in cli("lower-llm", "nowhere", "-b", "xnnpack", code=2).err
    assert (
        "context is 4096, more than" in cli("lower-llm", str(folder), "-b", "xnnpack", "--context", "4096", code=2).err
    )
    assert not list(tmp_path.glob("*/*.pte"))
    assert "runner has no --seed" in cli("generate", str(file), "a", "--stock", "--seed", "1", code=2).err
    said = cli("generate", str(file), "a" * 96, "--stock", code=2).err
    assert "the prompt has 96 tokens, and the context 96" in said
    (tmp_path / "text.txt").write_bytes(b"a\xff")
    lowering = ("lower-llm", str(folder), "-b", "qnn", "--scheme", "16a4w", "--calibration")
    assert "text.txt: is not a text in UTF-8: byte 1" in cli(*lowering, str(tmp_path / "text.txt"), code=1).err
    other = tmp_path / "other.pte"
    other.write_bytes(file.read_bytes())
    assert "there is no tokenizer" in cli("generate", str(other), "a", code=2).err


def test_a_folder_without_a_tokenizer_is_told(cli: Any, folder: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(folder, tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer*"))
    told = cli("lower-llm", str(bare), "-b", "xnnpack", "--context", "16", "-o", "bare.pte").out
    assert "has no tokenizer.json" in told and "bare.pte 'Once upon a time' --tokenizer FILE" in told


def test_bits_of_the_embedding_are_told(cli: Any, folder: Path) -> None:
    lowering = ("lower-llm", str(folder), "-b", "xnnpack", "--context", "16", "--scheme", "int8-dynamic-int4")
    told = cli(*lowering, "--embedding-bits", "8").out
    assert "22 of 28 layers are quantized" in told and "the embedding has integers of 8 bits" in told
    assert "no rule for embedding" not in told


def test_what_stays_in_float_and_what_changes_nothing_is_told(cli: Any, folder: Path) -> None:
    lowering = ("lower-llm", str(folder), "-b", "xnnpack", "--context", "16", "--scheme", "int8-dynamic-int4")
    told = cli(*lowering, "--dequantize").out
    assert "its weights are float numbers already: there is nothing to dequantize" in told
    assert re.search(r"\n  \d+ in float, from \S+ on: scheme int8-dynamic-int4 has no rule for bmm\n", told)


def test_bits_that_there_are_not_are_refused_before_the_weights_are_read(
    cli: Any, folder: Path, tmp_path: Path
) -> None:
    bare = shutil.copytree(folder, tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors"))
    lowering = ("lower-llm", str(bare), "-b", "xnnpack")
    assert "embeddings of 3 bits are not made" in cli(*lowering, "--embedding-bits", "3", code=2).err
    assert "caches of 4 bits are not made" in cli(*lowering, "--cache-bits", "4", code=2).err


def test_tokens_that_the_tokenizer_has_not_are_told(file: Path, tmp_path: Path) -> None:
    small = json.loads(file.with_name("tokenizer.json").read_text("utf-8"))
    tokens = Generator(file).vocabulary
    generated: list[Generation] = []
    Generator(file).generate(PROMPT, tokens=12, told=generated.append)
    assert generated[0].unknown == 0 and "tokenizer" not in str(generated[0])
    words = small["model"]["vocab"]
    least = min(generated[0].tokens)
    small["model"]["vocab"] = {word: number for word, number in words.items() if number < least or len(word) == 1}
    kept = small["model"]["vocab"].values()
    small["model"]["merges"] = []
    place = tmp_path / "tokenizer.json"
    place.write_text(json.dumps(small), "utf-8")
    fewer = Vocabulary(place)
    assert (
        {number for number in words.values() if fewer.has(number)} == set(kept) < {*filter(tokens.has, words.values())}
    )
    prompt = tokens.encode(PROMPT)
    Generator(file, place).generate(prompt, tokens=12, told=generated.append)
    assert generated[1].tokens == generated[0].tokens
    missing = sum(token not in kept for token in generated[0].tokens)
    assert generated[1].unknown == missing > 0
    assert str(generated[1]).endswith(f"; {missing} of the tokens are not in the tokenizer")


def test_the_six_lines_of_the_page_generate(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "language-models.md").read_text("utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(code, {"folder": folder})
    assert len(capsys.readouterr().out) > 8


def test_the_page_has_all_families() -> None:
    page = (Path(__file__).parents[3] / "docs" / "language-models.md").read_text("utf-8")
    table = page.partition("| `model_type` |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) == {*FAMILIES, *ENCODER_DECODERS}
