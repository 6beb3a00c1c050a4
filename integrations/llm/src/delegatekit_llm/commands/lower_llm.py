"""`delegatekit lower-llm`: from a folder of Hugging Face transformers to a file for ExecuTorch's text runner."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from delegatekit import cli

if TYPE_CHECKING:
    from delegatekit.quantization import QuantizationReport


@cli.results_alone
def lower_llm(
    folder: Annotated[Path, typer.Argument(help="A folder with config.json, *.safetensors and tokenizer.json.")],
    backend: Annotated[
        list[str],
        typer.Option(
            "--backend", "-b", help="A backend; repeat in priority order.", autocompletion=cli.installed_backends
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The .pte file; the tokenizer's files go beside it. By default NAME/NAME.pte."
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens that the cache keeps: of prompt and answer together; by default 2048, or what the model has.",
        ),
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of one call, at most; by default 512 (of a prefill 128), or the context."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="forward, or prefill and decode (repeat), whose sizes are fixed; by default what the backend takes."
        ),
    ] = None,
    source_context: Annotated[
        int | None, typer.Option(min=1, help="Tokens that an encoder takes, at most; by default 512.")
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(help="Quantize the weights by this scheme of the first backend (`delegatekit schemes`)."),
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(min=1, help="Size of the weights' groups, if the scheme has some.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="A text like those to come, for a scheme that fixes the ranges of activations; by default noise.",
            callback=cli.given_file,
        ),
    ] = None,
    dequantize: Annotated[
        bool,
        typer.Option("--dequantize", help="Make float numbers of weights that are integers already (GPTQ, AWQ, ...)."),
    ] = False,
    embedding_bits: Annotated[
        int | None, typer.Option(help="Bits of the embedding's numbers: 8 or 4. By default they stay as they are.")
    ] = None,
    cache_bits: Annotated[
        int | None, typer.Option(help="Bits of the cache's numbers: 8. By default they are of --dtype.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="What is computed with: float32, float16 or bfloat16.")] = "float32",
    fused: Annotated[
        bool, typer.Option("--fused", help="Attention by ExecuTorch's fused operator, which the runtime must have.")
    ] = False,
    all_logits: Annotated[bool, typer.Option("--all-logits", help="Return the logits of all tokens.")] = False,
    external: Annotated[
        bool, typer.Option("--external", help="Weights in a data file (.ptd) beside the .pte.")
    ] = False,
    option: cli.SettingOption = [],  # noqa: B006
    unknown_family: Annotated[
        bool,
        typer.Option("--unknown-family", help="Try a model type that is not known, and compare it with the model."),
    ] = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Lower a language model to backends: a .pte file for `delegatekit generate` and ExecuTorch's text runner."""
    from delegatekit import report
    from delegatekit.files import PTE, check_outputs

    name = folder.resolve().name
    place = Path(name, f"{name}.pte") if output is None else output
    if output is not None or place.parent.exists():
        check_outputs(place, inputs=[folder / "config.json", *folder.glob("*.safetensors")])
    cli.question_place("--output", place, PTE)
    with cli.progress() as waiting:
        from ..folders import checked_beside, files_beside
        from ..lowering import lower
        from ..vocabulary import text_in

        checked_beside(place, files_beside(folder))
        model = lower(
            folder,
            backend,
            context=context,
            chunk=chunk,
            methods=method or None,
            source_context=source_context,
            scheme=scheme,
            group_size=group_size,
            calibration=None if calibration is None else text_in(calibration.read_bytes(), str(calibration)),
            dequantize=dequantize,
            embedding_bits=embedding_bits,
            cache_bits=cache_bits,
            fused=fused,
            dtype=dtype,
            all_logits=all_logits,
            known_family=not unknown_family,
            options=cli.settings(option, backend),
            external=external,
        )
        if output is None:
            place.parent.mkdir(exist_ok=True)
        waiting.begin(f"write {place.name}, MiB")
        written = model.save(place, waiting.moved)
    found = report(model.program)
    if as_json:
        cli.print_json(found)
        return
    for sentence in model.told:
        cli.say(sentence)
    if model.quantization is not None:
        cli.show(model.quantization, lambda report: _quantized(report, embedding_bits))
    cli.show(found, str)
    if "prefill" in model.methods:
        why = "" if method else f": {backend[0]} takes fixed sizes"
        cli.say(f"methods prefill, of {model.chunk} tokens, and decode, of one{why}")
    for path in written:
        cli.say(f"wrote {path} ({path.stat().st_size:,} bytes)")
    needed = "" if "tokenizer.json" in model.files else " --tokenizer FILE"
    if needed:
        cli.say(f"{folder} has no tokenizer.json: to generate text, one is needed")
    cli.say(f"try it: delegatekit generate {written[-1]} 'Once upon a time'{needed}")


def _quantized(report: QuantizationReport, embedding_bits: int | None) -> str:
    """The number of quantized layers, and for those that are not, each reason once."""
    given = sum(layer.given for layer in report.quantized)
    # The lookup of an embedding's scales is no layer that stays in float.
    kept = [layer for layer in report.kept if embedding_bits is None or layer.operator != "embedding"]
    lines = [f"{report.scheme}: {len(report.quantized)} of {len(report.quantized) + len(kept)} layers are quantized"]
    if embedding_bits is not None:
        lines.append(f"  the embedding has integers of {embedding_bits} bits")
    if given:
        lines.append(
            f"  {given} have the integers that they came with, {len(report.quantized) - given} are rounded here"
        )
    first = {layer.reason: layer.module for layer in reversed(kept)}
    for reason, count in Counter(layer.reason for layer in kept).most_common():
        where = f", from {first[reason]} on" if count > 1 else f", {first[reason]}"
        lines.append(f"  {count} in float{where}: {reason}")
    return "\n".join(lines)
