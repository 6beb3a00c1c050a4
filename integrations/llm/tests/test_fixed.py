"""Files of a prefill and a decode: the tokens are transformers', for prompts of any length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import TEXT, Called, build, continued, prompt_of, text_of

import delegatekit
from delegatekit_api import DelegateKitError
from delegatekit_llm import Decoder, Generation, Generator, lower
from delegatekit_llm.calibration import calls_of
from delegatekit_llm.fixed import joined, padded
from delegatekit_llm.stock import stream

CHUNK, CONTEXT, COUNT = 16, 128, 64
METHODS = ("prefill", "decode")
#: Shorter than a chunk, one, a token more, several with a rest, several whole ones, and so many that 64 tokens fill it.
LENGTHS = (5, 16, 17, 40, 48, 65)


def in_engine(program: Any) -> Called:
    """The methods of a session of its own."""
    session = program.new_session()
    return joined(session["prefill"], session["decode"], CHUNK)


def in_stock(content: bytes) -> Called:
    """The methods of a file in ExecuTorch's runtime, both loaded, as one that takes any number of tokens."""
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(content)
    methods = [program.load_method(name) for name in METHODS]

    def calls(method: Any) -> Any:
        def call(*arguments: Any) -> Any:
            assert content  # the runtime reads it where it is: it must live as long as the methods
            return method.execute(list(arguments))[0].clone()

        return call

    return joined(*map(calls, methods), CHUNK)


@pytest.mark.parametrize("family", ["gemma3_text", "llama", "phi3"])
def test_prompts_of_any_length_give_what_transformers_does(family: str) -> None:
    model = build(family)
    content = lower(model, ["xnnpack"], context=CONTEXT, chunk=CHUNK, methods=METHODS).program.buffer
    program = delegatekit.load(content)
    stock = in_stock(content)
    for length in LENGTHS:
        prompt = prompt_of(length)
        wanted = text_of(model, prompt, COUNT)
        assert continued(in_engine(program), prompt, CHUNK, COUNT) == wanted, length
        assert continued(stock, prompt, CHUNK, COUNT) == wanted, length
        assert len(set(wanted)) > 4


@pytest.mark.parametrize("length", [CONTEXT - 3, CONTEXT])
@pytest.mark.parametrize("family", ["gemma3_text", "llama"])
def test_a_prompt_that_fills_the_context_gives_the_next_token(family: str, length: int) -> None:
    # 120 tokens of context: the last chunk would go 8 tokens beyond it.
    context, prompt = CONTEXT - 8, prompt_of(length - 8)
    model = build(family)
    program = lower(model, ["xnnpack"], context=context, chunk=CHUNK, methods=METHODS).program
    wanted = text_of(model, prompt, context + 1 - prompt.shape[1])
    for forward in (in_engine(delegatekit.load(program.buffer)), in_stock(program.buffer)):
        assert continued(forward, prompt, CHUNK, len(wanted)) == wanted


def test_what_does_not_count_changes_nothing() -> None:
    model = build("gemma3_text")
    made = lower(model, ["reference"], context=64, chunk=CHUNK, methods=METHODS)
    program = delegatekit.load(made.program.buffer)
    prompt, start = prompt_of(45), torch.tensor([0])
    one, other = program.new_session(), program.new_session()
    for session in (one, other):
        for position in (0, 16):
            session["prefill"](*padded(prompt[:, position : position + 16], torch.tensor([position]), CHUNK))
    # From the 33rd token on the windows use places again.
    tokens, start, count = padded(prompt[:, 32:37], torch.tensor([32]), CHUNK)
    first = one["prefill"](tokens, start, count)
    tokens[:, 5:] = prompt_of(11)
    assert torch.equal(first, other["prefill"](tokens, start, count))
    for position in range(37, 45):
        given = prompt[:, position : position + 1], torch.tensor([position])
        assert torch.equal(one["decode"](*given), other["decode"](*given))


@pytest.mark.parametrize("family", ["gemma3_text", "llama"])
def test_a_backend_of_fixed_sizes_gets_them_without_being_asked(family: str) -> None:
    model, context, count = build(family), 48, 8
    made = lower(model, ["qnn"], context=context, chunk=CHUNK)
    assert made.methods == METHODS
    report = delegatekit.report(made.program)
    # Remainders by the places of a window are the runtime's.
    most = 2 if family == "gemma3_text" else 1
    delegates = {method.name: len(method.delegates) for method in report.methods if method.name in METHODS}
    assert delegates == dict.fromkeys(METHODS, most) and report.shares.runtime.macs == 0
    program = delegatekit.load(made.program.buffer)
    for length in (5, 16, 35, context):
        # In float16 a token may not be the likeliest by as little as it is in float32: the logits of a text are judged.
        prompt = prompt_of(length)
        text = torch.cat((prompt, torch.tensor([text_of(model, prompt, min(count, context + 1 - length))])), 1)[:, :-1]
        found, wanted = (_logits(forward, text, length) for forward in (in_engine(program), Decoder(model, context)))
        assert torch.cosine_similarity(found, wanted).min() > 0.9999
        # A chunk leaves in the caches, bit by bit, what single tokens do.
        single = program.new_session()["decode"]
        for position in range(length):
            last = single(text[:, position : position + 1], torch.tensor([position]))
        assert torch.equal(last[0, -1], found[0])
        for index, position in enumerate(range(length, text.shape[1]), 1):
            last = single(text[:, position : position + 1], torch.tensor([position]))
            assert torch.equal(last[0, -1], found[index])


def _logits(forward: Any, text: torch.Tensor, length: int) -> torch.Tensor:
    """The logits of the last token of a prompt of this length, and of each token after it: (n, vocabulary)."""
    with torch.no_grad():
        for start in range(0, length, CHUNK):
            last = forward(text[:, start : min(start + CHUNK, length)], torch.tensor([start]))
        found = [last[0, -1]]
        for start in range(length, text.shape[1]):
            found.append(forward(text[:, start : start + 1], torch.tensor([start]))[0, -1])
    return torch.stack(found)


def test_fixed_ranges_and_weights_of_4_bits_compute_what_the_quantized_module_does() -> None:
    text = prompt_of(48)
    settings: dict[str, Any] = {"scheme": "16a4w", "calibration": text[0].tolist()}
    made = lower(build("llama"), ["qnn"], context=48, chunk=CHUNK, **settings)
    report = delegatekit.report(made.program)
    assert report.shares.runtime.macs == 0
    modules: Any = made.module
    eager = joined(*(modules[name] for name in METHODS), CHUNK)
    # Sums of 16-bit integers are not exact on this processor.
    found, wanted = (_logits(call, text, 20) for call in (in_engine(delegatekit.load(made.program.buffer)), eager))
    assert torch.cosine_similarity(found, wanted).min() > 0.999
    likely = wanted.topk(2).values
    certain = likely[:, 0] - likely[:, 1] > (found - wanted).abs().amax(1) * 2
    assert certain.sum() > 20 and torch.equal(found.argmax(1)[certain], wanted.argmax(1)[certain])


def test_a_text_calibrates_as_the_calls_that_it_is_given_in() -> None:
    calls = calls_of(list(range(70)), 60, 16, METHODS)
    assert [(int(start), int(count)) for _, start, count in calls["prefill"]] == [(0, 16), (16, 14)]
    assert [(int(token), int(start)) for token, start in calls["decode"]] == [(at, at) for at in range(30, 60)]
    assert [int(start) for _, start in calls_of([1, 2, 3], 60, 16, ["forward"])["forward"]] == [0, 2]
    with pytest.raises(DelegateKitError, match="has 1 tokens"):
        calls_of([1], 60, 16, METHODS)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scheme": "int8-dynamic", "calibration": [1, 2]}, "nothing is calibrated"),
        ({"scheme": "int8", "calibration": "a text"}, "without a folder has no tokenizer"),
    ],
)
def test_texts_that_calibrate_nothing_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DelegateKitError, match=said):
        lower(build("llama"), ["xnnpack"], context=32, **settings)


def test_a_backend_of_fixed_sizes_gets_one_method_for_single_tokens() -> None:
    assert lower(build("llama"), ["qnn"], context=16, chunk=1).methods == ("forward",)


@pytest.fixture(scope="module")
def fixed_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fixed") / "tiny.pte"
    lower(folder, ["xnnpack"], context=96, chunk=CHUNK, methods=METHODS).save(place)
    return place


def test_the_generator_takes_it_as_it_takes_the_other(fixed_file: Path, file: Path) -> None:
    generator, told = Generator(fixed_file), list[Generation]()
    for prompt in ("t", TEXT[:9], TEXT[:90], [5] * 90, [5] * 96):
        assert generator.generate(prompt, tokens=24, told=told.append) == Generator(file).generate(prompt, tokens=24)
    assert [found.ended_by for found in told[-2:]] == ["context", "context"] and len(told[-1].tokens) == 1
    # Two texts by turns.
    streams = [generator.stream(prompt, tokens=12) for prompt in (TEXT[:40], TEXT[5:60])]
    pieces: list[list[str]] = [[], []]
    while any(streams):
        for index, text in enumerate(streams):
            if text and (piece := next(text, None)) is not None:
                pieces[index].append(piece)
            else:
                streams[index] = None  # type: ignore[call-overload]
    assert ["".join(found) for found in pieces] == [
        generator.generate(prompt, tokens=12) for prompt in (TEXT[:40], TEXT[5:60])
    ]


def test_a_runner_is_told_what_it_asks(fixed_file: Path) -> None:
    program = delegatekit.load(fixed_file)
    told = {name: program[name]() for name in program if name not in METHODS}
    assert (told["get_max_seq_len"], told["get_max_context_len"], told["enable_dynamic_shape"]) == (CHUNK, 96, False)


def test_executorchs_runner_is_kept_from_it(fixed_file: Path) -> None:
    with pytest.raises(DelegateKitError, match=r"buffers of methods apart(.|\n)*--method forward"):
        list(stream(fixed_file, fixed_file.with_name("tokenizer.json"), "a", tokens=4))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"methods": ["prefill"]}, "methods: cannot be prefill"),
        ({"methods": METHODS, "chunk": 1}, "chunk is 1"),
        ({"group_size": 16}, "group_size is 16, and no scheme is there"),
        ({"methods": METHODS, "fused": True}, "fused attention sees all tokens of a call"),
    ],
)
def test_methods_that_do_not_go_together_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DelegateKitError, match=said):
        lower(build("llama"), ["xnnpack"], context=32, **settings)


def test_the_command_says_what_it_made(cli: Any, folder: Path) -> None:
    Path("text.txt").write_text(TEXT, "utf-8")
    more = ("--scheme", "16a8w", "--calibration", "text.txt")
    printed = cli("lower-llm", str(folder), "-b", "qnn", "--context", "96", "--chunk", "32", *more).out
    assert "methods prefill, of 32 tokens, and decode, of one: qnn takes fixed sizes" in printed
    asked = ("--method", "prefill", "--method", "decode", "-o", "net.pte")
    assert (
        "of 96 tokens, and decode, of one\n"
        in cli("lower-llm", str(folder), "-b", "xnnpack", "--context", "96", *asked).out
    )
    for place in ("tiny-llama/tiny-llama.pte", "net.pte"):
        assert len(cli("generate", place, TEXT[:60], "-n", "8").out) > 4
