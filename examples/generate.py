"""Text from a tiny Llama: one file with the methods `prefill` and `decode`, which share all weights and a KV cache.

    python examples/generate.py        (or: make generate)

The cache is a static one: buffers of the module, which its calls update in place. `prefill` takes a prompt of 2 to 32
tokens, `decode` one token more. Eager, DelegateKit's Python engine and the stock ExecuTorch runtime choose their tokens
themselves, greedily, the two engines from the same file. The weights are random, so the text means nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.table import Table

import delegatekit
from delegatekit_conformance.models import CachedDecoder, tiny_llama

TOKENS = 32
console = Console(width=120, highlight=False)
Step = Callable[[torch.Tensor], torch.Tensor]


def main() -> None:
    """Lower both methods, generate three times, compare."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # torchao announces the GPU libraries that it does not find
    module = tiny_llama(length=64)
    program = delegatekit.lower(module.export_methods(longest=32), backends=["xnnpack"])
    prompt = torch.tensor([list(b"The cat ")])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "llama.pte"
        program.save(path)
        console.print(str(delegatekit.report(program)), markup=False)
        weights = sum(tensor.numel() * tensor.element_size() for tensor in module.parameters())
        cache = sum(tensor.numel() * tensor.element_size() for tensor in module.state.values())
        size = path.stat().st_size
        console.print(f"{weights:,} bytes of weights, {cache:,} of cache; the file with both methods has {size:,}")
        texts = {"eager": run_eager(module, prompt), "Python engine": run_engine(path, prompt)}
        texts["stock runtime"] = run_stock(path, prompt)

    table = Table("", "tokens", title=f"{TOKENS} tokens after {bytes(prompt[0].tolist())!r}")
    for name, tokens in texts.items():
        table.add_row(name, " ".join(map(str, tokens)))
    console.print(table)
    same = all(tokens == texts["eager"] for tokens in texts.values())
    console.print("all tokens are the same" if same else "THE TOKENS DIFFER")
    if not same:
        raise SystemExit(1)


def generate(prefill: Step, decode: Step, prompt: torch.Tensor) -> list[int]:
    """Greedy generation after a prompt (1, T): each token is the best of the logits (1, V) and the next input."""
    tokens = [int(prefill(prompt).argmax())]
    while len(tokens) < TOKENS:
        tokens.append(int(decode(torch.tensor([tokens[-1:]])).argmax()))
    return tokens


def run_eager(module: CachedDecoder, prompt: torch.Tensor) -> list[int]:
    """PyTorch; the module's own buffers are the cache."""
    with torch.no_grad():
        module.reset()
        return generate(module, module, prompt)


def run_engine(path: Path, prompt: torch.Tensor) -> list[int]:
    """The Python engine: methods of one loaded program have the shared buffers in common."""
    program = delegatekit.load(path)
    return generate(program["prefill"], program["decode"], prompt)


def run_stock(path: Path, prompt: torch.Tensor) -> list[int]:
    """The stock runtime. Loading a method writes the cache's initial values: load all before the first call."""
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)

    def step(name: str) -> Step:
        method = program.load_method(name)
        assert method is not None
        return lambda tokens: method.execute([tokens])[0]

    return generate(step("prefill"), step("decode"), prompt)


if __name__ == "__main__":
    main()
