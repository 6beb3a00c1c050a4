"""Perplexity of a small language model under every scheme for weights, as a section of docs/accuracy.md.

    python benchmarks/perplexity.py                               # print the section
    python benchmarks/perplexity.py --write                       # write it into docs/accuracy.md
    python benchmarks/perplexity.py --backends xnnpack --steps 300

A Llama of a million weights is trained on this project's documentation, without its last part, on which it is
judged. The module that `lower` returns is measured, which computes what its file computes; of the file itself, some
tokens are compared in our engine.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from accuracy import PAGE, merged
from random_language_models import text_at_hand

import delegatekit
import delegatekit_llm
from delegatekit.quantization.listing import schemes_by_backend
from delegatekit.quantization.ratio import sqnr_db
from delegatekit_api import DelegateKitError

TITLE: Final = "## A small language model"
_VOCABULARY: Final = 1024
_CONTEXT: Final = 256
#: Tokens that are judged, in texts of `_CONTEXT` tokens.
_JUDGED: Final = 8 * _CONTEXT
#: Tokens that a file is asked.
_ASKED: Final = 32
#: Settings of `delegatekit_llm.lower` that are measured with the first backend, beside its schemes.
_MORE: Final[dict[str, dict[str, Any]]] = {
    "8-bit embedding": {"embedding_bits": 8},
    "4-bit embedding": {"embedding_bits": 4},
    "8-bit cache": {"cache_bits": 8},
}


@dataclass(frozen=True)
class Way:
    """Settings of `delegatekit_llm.lower` under a name."""

    backend: str
    name: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """What was measured: perplexity, the file's distance from the module in dB, and its size in KiB."""

    way: Way
    perplexity: float
    fidelity: float
    size: int


def trained(folder: Path, steps: int) -> torch.Tensor:
    """Train a model and write its folder; returns the tokens that it did not see, (texts, tokens)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    text = text_at_hand()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=_VOCABULARY, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(text.splitlines(), trainer)
    ids = torch.tensor(tokenizer.encode(text).ids)
    known, unseen = ids[:-_JUDGED], ids[-_JUDGED:].view(-1, _CONTEXT)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=_VOCABULARY,
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=_CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        starts = torch.randint(0, len(known) - 129, (8,)).tolist()
        parts = torch.stack([known[start : start + 129] for start in starts])
        loss = model(parts, labels=parts, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    model.eval().save_pretrained(folder)
    fast: Any = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    return unseen


def perplexity(logits: Callable[[torch.Tensor], torch.Tensor], texts: torch.Tensor) -> float:
    """That of texts, (texts, tokens): e to the mean negative log likelihood of a token behind those before it."""
    losses = [torch.nn.functional.cross_entropy(logits(text)[:-1].float(), text[1:]) for text in texts]
    return float(torch.stack(losses).mean().exp())


def ways(backends: Sequence[str]) -> Iterator[Way]:
    """Each backend in float and by its schemes that quantize weights alone, or activations as they come."""
    for number, backend in enumerate(backends):
        options = {"coreml": {"target": "ios18"}}.get(backend, {})
        common = {"options": {backend: options}} if options else {}
        yield Way(backend, "float", common)
        for scheme in schemes_by_backend(backend, {backend: options})[backend]:
            if scheme.kind != "static":
                yield Way(backend, scheme.name, {**common, "scheme": scheme.name})
        if not number:
            for name, more in _MORE.items():
                yield Way(backend, name, {**common, **more})


def measured(way: Way, folder: Path, texts: torch.Tensor) -> Row:
    """A row. Raises DelegateKitError if the backend refuses."""
    model = delegatekit_llm.lower(folder, [way.backend], context=_CONTEXT, all_logits=True, **way.settings)
    start = torch.tensor([0])

    def called(forward: Any, text: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = forward(text[None], start)[0]
        return found

    asked = texts[0, :_ASKED]
    wanted = called(model.module, asked)
    content = model.program.buffer
    found = called(delegatekit.load(content)["forward"], asked)
    return Row(
        way,
        perplexity(lambda text: called(model.module, text), texts),
        sqnr_db(found.float(), wanted.float()),
        len(content) >> 10,
    )


def section(rows: Sequence[Row], refused: Sequence[str], steps: int, plain: float) -> str:
    """The section of the page."""
    lines = [
        TITLE,
        "",
        f"Written by `python benchmarks/perplexity.py --write`. A Llama of 4 layers and {_VOCABULARY} tokens, trained "
        f"for {steps} steps on this project's documentation, without the {_JUDGED} tokens on which it is judged. "
        f"Perplexity is that of the module, which computes what the file does; transformers' model has {plain:.3f}. "
        "\"to eager\" compares the file's logits of a text in our engine with the module's.",
        "",
        "| backend | scheme | perplexity | SQNR dB: to eager | file KiB |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        fidelity = "equal" if row.fidelity == float("inf") else f"{row.fidelity:.1f}"
        lines.append(f"| {row.way.backend} | {row.way.name} | {row.perplexity:.3f} | {fidelity} | {row.size} |")
    if refused:
        lines += ["", "Not in the table:", "", *refused]
    return "\n".join(lines)


def main() -> int:
    """Measure, then print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="*", default=["xnnpack", "vulkan", "coreml"])
    parser.add_argument("--steps", type=int, default=400, help="of training")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} instead of printing")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows, refused = [], []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        unseen = trained(folder, arguments.steps)
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        with torch.no_grad():
            plain = perplexity(lambda text: model(text[None], use_cache=False).logits[0], unseen)
        for way in ways(arguments.backends):
            try:
                rows.append(measured(way, folder, unseen))
                print(rows[-1], file=sys.stderr)
            except DelegateKitError as error:
                refused.append(f"* {way.backend} {way.name}: {error}")
    text = section(rows, refused, arguments.steps, plain)
    if not arguments.write:
        print(text)
        return 0
    old = PAGE.read_text(encoding="utf-8")
    head = old.partition("\n## ")[0]
    PAGE.write_text(merged(f"{head}\n\n{text}\n", old, arguments.backends), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
