"""`delegatekit generate`: text from a lowered language model, as it comes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from delegatekit import cli


def generate(
    file: Annotated[Path, typer.Argument(help="A .pte file of `delegatekit lower-llm`.", callback=cli.given_file)],
    prompt: Annotated[
        str,
        typer.Argument(
            help="The text to go on with, or for an encoder; - takes it from stdin. A model that hears takes a .wav."
        ),
    ],
    tokenizer: Annotated[
        Path | None, typer.Option(help="The model's tokenizer.json. By default the one beside the file.")
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=1, help="New tokens, at most.")] = 128,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token, more draws one.")] = 0.0,
    top_p: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Draw from the likeliest tokens that have this probability together."),
    ] = 1.0,
    seed: Annotated[
        int, typer.Option(min=-(2**63), max=2**64 - 1, help="Seed of what is drawn: the same one draws the same text.")
    ] = 0,
    stop: Annotated[list[str], typer.Option(help="A token that ends the text, besides the model's own; repeat.")] = [],  # noqa: B006
    start: Annotated[
        list[str], typer.Option(help="A token that the decoder behind an encoder begins with; repeat.")
    ] = [],  # noqa: B006
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    stock: Annotated[bool, typer.Option("--stock", help="Run it in ExecuTorch's own text runner.")] = False,
) -> None:
    """Generate text with a lowered language model; the speeds are told at the end, on stderr."""
    from ..audio import spectrogram
    from ..generation import Generator, Sampling
    from ..stock import stream
    from ..vocabulary import Vocabulary, text_in

    wanted = {"--stop": stop, "--start": start, "--top-p": top_p != 1.0, "--seed": seed}
    if stock and any(wanted.values()):
        without = " and no ".join(name for name, given in wanted.items() if given)
        cli.usage(
            f"ExecuTorch's runner has no {without}",
            f"leave {'it' if len(without.split()) == 1 else 'them'} out, or leave --stock out",
        )
    place = file.with_name("tokenizer.json") if tokenizer is None else tokenizer
    text = text_in(sys.stdin.buffer.read(), "stdin") if prompt == "-" else prompt
    if chat:
        text = Vocabulary(place).chat(text)
    told: list[object] = []
    if stock:
        pieces = stream(file, place, text, tokens=tokens, temperature=temperature, told=told.append)
    else:
        generator = Generator(file, place)
        # Of a model that hears, the prompt is a file.
        given = text if generator.longest else spectrogram(Path(text), file.parent)
        pieces = generator.stream(
            given,
            start=start,
            tokens=tokens,
            sampling=Sampling(temperature, top_p, seed),
            stop=stop,
            told=told.append,
        )
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    for line in told:
        cli.remark(str(line))
