"""The products that `language_models.py` compares: how each one's file is made of a folder, and how it generates.

    python benchmarks/text_products.py make ORDER     CPU seconds of making a file, and its bytes
    python benchmarks/text_products.py run ORDER      the times of a product's tokens, and its memory

Each step is a process, of the Python that has the product: nothing else is imported. ORDER is JSON, see `Order`. The
last line that is printed is the result, in JSON as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

#: A token: a number or, where a product returns only that, text.
Token: TypeAlias = "int | str"
#: Generates so many tokens after the prompt, and tells each when it is there.
Generate: TypeAlias = "Callable[[int, Callable[[Token], None]], None]"


@dataclass(frozen=True)
class Order:
    """What a process shall do."""

    product: str
    #: "float32" or "int4".
    precision: str
    #: The model's folder, and the one of the product's file.
    model: str
    place: str
    context: int
    prompt: str = ""
    #: The same as numbers.
    tokens: tuple[int, ...] = ()
    #: New tokens.
    count: int = 0
    threads: int = 1
    #: Measured generations, after the first token of another.
    repeats: int = 1


class Product(Protocol):
    """A way from a folder to generated text."""

    title: str
    precisions: tuple[str, ...]
    #: Packages whose versions are told; the first must be installed.
    packages: tuple[str, ...]
    #: What installs them.
    install: str
    #: The product whose file it runs, if that is another.
    file_of: str | None

    def make(self, order: Order) -> None:
        """Write what it runs into the folder `order.place`."""

    def start(self, order: Order) -> None:
        """Imports and threads, which are not measured."""

    def open(self, order: Order) -> Generate:
        """The file, ready to generate."""


# -- PyTorch ---------------------------------------------------------------------------------------------------------


class Eager:
    """transformers in eager mode, with its own cache and attention."""

    title, precisions, file_of = "transformers, eager", ("float32",), None
    packages = ("transformers", "torch")
    install = "pip install transformers"

    def make(self, order: Order) -> None:
        """Nothing: it reads the folder."""

    def start(self, order: Order) -> None:
        """Set PyTorch's threads."""
        import torch
        from transformers import LlamaForCausalLM  # noqa: F401

        torch.set_num_threads(order.threads)
        torch.set_grad_enabled(mode=False)

    def open(self, order: Order) -> Generate:
        """The model of the folder."""
        import torch
        from transformers import AutoModelForCausalLM, DynamicCache

        model = AutoModelForCausalLM.from_pretrained(order.model, dtype=torch.float32, local_files_only=True).eval()

        def generate(count: int, told: Callable[[Token], None]) -> None:
            cache, given = DynamicCache(), torch.tensor([order.tokens])
            for _ in range(count):
                logits = model(given, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
                given = logits[:, -1].argmax(-1, keepdim=True)
                told(int(given))

        return generate


# -- ExecuTorch ------------------------------------------------------------------------------------------------------


class _InStockRunner:
    """A .pte file in ExecuTorch's own text runner."""

    def start(self, order: Order) -> None:
        """Set the threads of the runtime's pool, and load the kernels of stock's own operators."""
        from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
        from executorch.extension.llm.runner import TextLLMRunner  # noqa: F401
        from executorch.extension.pybindings import _C
        from executorch.kernels import quantized  # noqa: F401

        _C._unsafe_reset_threadpool(order.threads)

    def open(self, order: Order) -> Generate:
        """A runner; it tells tokens as text."""
        from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

        runner = TextLLMRunner(str(_file(order)), str(Path(order.model, "tokenizer.json")))

        def generate(count: int, told: Callable[[Token], None]) -> None:
            config = GenerationConfig(max_new_tokens=count, temperature=0.0, echo=False)
            runner.generate(order.prompt, config, token_callback=told)
            runner.reset()

        return generate


class Ours(_InStockRunner):
    """`delegatekit lower-llm` to XNNPACK, in ExecuTorch's runner."""

    title, precisions, file_of = "DelegateKit in ExecuTorch's runner", ("float32", "int4"), None
    packages = ("delegatekit-llm", "executorch")
    install = "pip install delegatekit-llm[stock] delegatekit-xnnpack[runtime]"
    fused = False

    def make(self, order: Order) -> None:
        """Lower: float32, or int8-dynamic-int4 with an embedding of 8 bits."""
        import delegatekit_llm

        more: dict[str, Any] = {}
        if order.precision == "int4":
            more = {"scheme": "int8-dynamic-int4", "embedding_bits": 8}
        model = delegatekit_llm.lower(order.model, ["xnnpack"], context=order.context, fused=self.fused, **more)
        model.save(_file(order))


class OursFused(Ours):
    """The same with attention by ExecuTorch's fused operator."""

    title, fused = f"{Ours.title}, --fused", True


class OurEngine:
    """The same file in DelegateKit's engine."""

    title, precisions, file_of = "DelegateKit in its own engine", Ours.precisions, "ours"
    packages = ("delegatekit-llm", "executorch")
    install = Ours.install

    def make(self, order: Order) -> None:
        """Nothing: the file is there."""

    def start(self, order: Order) -> None:
        """Set the threads of PyTorch's kernels and of XNNPACK's pool."""
        import torch
        from executorch.extension.pybindings import _C

        import delegatekit_xnnpack.runtime  # noqa: F401

        torch.set_num_threads(order.threads)
        _C._unsafe_reset_threadpool(order.threads)

    def open(self, order: Order) -> Generate:
        """A generator; it tells tokens as text."""
        import delegatekit_llm

        generator = delegatekit_llm.Generator(_file(order))

        def generate(count: int, told: Callable[[Token], None]) -> None:
            for piece in generator.stream(order.tokens, tokens=count):
                told(piece)

        return generate


class Stock(_InStockRunner):
    """ExecuTorch's own recipe for Llamas, `export_llama`, in its runner."""

    title, precisions, file_of = "ExecuTorch's export_llama", ("float32", "int4"), None
    packages = ("executorch",)
    install = "pip install executorch==1.5.1"

    def make(self, order: Order) -> None:
        """Export with the settings of its llama_xnnpack.yaml, but groups of 32 and an embedding of 8 bits, as ours."""
        place = Path(order.place)
        _write_checkpoint(Path(order.model), place)
        length = str(order.context)
        command = [sys.executable, "-m", "executorch.examples.models.llama.export_llama", "--model", "llama3_2"]
        command += ["--checkpoint", str(place / "model.pth"), "--params", str(place / "params.json")]
        command += ["-kv", "--use_sdpa_with_kv_cache", "-X", "--xnnpack-extended-ops", "-d", "fp32"]
        command += ["--max_seq_length", length, "--max_context_length", length]
        command += ["--metadata", '{"get_bos_id": 0, "get_eos_ids": [1]}', "--output_name", str(_file(order))]
        if order.precision == "int4":
            command += ["-qmode", "8da4w", "--group_size", "32", "--embedding-quantize", "8,0"]
        try:
            _run(command)
        finally:
            (place / "model.pth").unlink()


#: A layer's weight in transformers -> in Meta's checkpoints, which `export_llama` reads.
_META: Final = MappingProxyType(
    {
        "self_attn.q_proj": "attention.wq",
        "self_attn.k_proj": "attention.wk",
        "self_attn.v_proj": "attention.wv",
        "self_attn.o_proj": "attention.wo",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.down_proj": "feed_forward.w2",
        "mlp.up_proj": "feed_forward.w3",
    }
)


def _write_checkpoint(model: Path, place: Path) -> None:
    """The folder's model as model.pth and params.json; the head is the embedding."""
    import torch
    from safetensors.torch import load_file

    config = json.loads((model / "config.json").read_text())
    found = {}
    for file in sorted(model.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            if name == "model.embed_tokens.weight":
                found |= dict.fromkeys(("tok_embeddings.weight", "output.weight"), tensor)
            elif name == "model.norm.weight":
                found["norm.weight"] = tensor
            else:
                layer, _, rest = name.removeprefix("model.layers.").removesuffix(".weight").partition(".")
                found[f"layers.{layer}.{_META[rest]}.weight"] = tensor
    torch.save(found, place / "model.pth")
    sizes = {
        "dim": config["hidden_size"],
        "hidden_dim": config["intermediate_size"],
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"],
        "n_layers": config["num_hidden_layers"],
        "norm_eps": config["rms_norm_eps"],
        "rope_theta": config["rope_parameters"]["rope_theta"],
        "vocab_size": config["vocab_size"],
        "multiple_of": 32,
        "ffn_dim_multiplier": 1,
        "use_scaled_rope": False,
        # The order of a head's numbers is transformers'.
        "use_hf_rope": True,
    }
    (place / "params.json").write_text(json.dumps(sizes))


# -- other runtimes --------------------------------------------------------------------------------------------------


class OnnxGenAi:
    """ONNX Runtime GenAI on the CPU, with the file of its model builder."""

    title, precisions, file_of = "ONNX Runtime GenAI", ("float32", "int4"), None
    packages = ("onnxruntime-genai", "onnxruntime")
    install = "pip install onnxruntime-genai onnx onnx-ir transformers torch"

    def make(self, order: Order) -> None:
        """Build; int4 in groups of 32, which are multiplied with activations of 8 bits."""
        precision = {"float32": "fp32"}.get(order.precision, order.precision)
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", order.model, "-o", order.place]
        command += ["-p", precision, "-e", "cpu", "-c", str(Path(order.place, "cache"))]
        if order.precision == "int4":
            command += ["--extra_options", "int4_block_size=32", "int4_accuracy_level=4"]
        _run(command)
        shutil.rmtree(Path(order.place, "cache"), ignore_errors=True)

    def start(self, order: Order) -> None:
        """Import it: threads are an option of the model."""
        import onnxruntime_genai  # noqa: F401

    def open(self, order: Order) -> Generate:
        """A model whose cache has the context's size."""
        import onnxruntime_genai

        config = onnxruntime_genai.Config(order.place)
        threads = {"intra_op_num_threads": order.threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
        model = onnxruntime_genai.Model(config)

        def generate(count: int, told: Callable[[Token], None]) -> None:
            parameters = onnxruntime_genai.GeneratorParams(model)
            parameters.set_search_options(do_sample=False, max_length=order.context)
            generator = onnxruntime_genai.Generator(model, parameters)
            generator.append_tokens(list(order.tokens))
            for _ in range(count):
                generator.generate_next_token()
                told(int(generator.get_next_tokens()[0]))

        return generate


class LlamaCpp:
    """llama.cpp by its Python package, with its defaults; int4 is its Q4_0."""

    title, precisions, file_of = "llama.cpp", ("float32", "int4"), None
    packages = ("llama-cpp-python", "gguf")
    install = "pip install llama-cpp-python gguf"

    def make(self, order: Order) -> None:
        """Convert, and let llama.cpp quantize."""
        from gguf_files import write_gguf

        if order.precision == "float32":
            write_gguf(Path(order.model), _file(order))
            return
        import llama_cpp

        whole = _file(order).with_suffix(".float32")
        write_gguf(Path(order.model), whole)
        parameters = llama_cpp.llama_model_quantize_default_params()
        parameters.ftype, parameters.nthread = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, 1
        failed = llama_cpp.llama_model_quantize(os.fsencode(whole), os.fsencode(_file(order)), ctypes.byref(parameters))
        whole.unlink()
        if failed:
            raise SystemExit(f"llama_model_quantize failed: {failed}")

    def start(self, order: Order) -> None:
        """Import it: threads are an option of the context."""
        import llama_cpp

        llama_cpp.llama_backend_init()

    def open(self, order: Order) -> Generate:
        """A context; the most likely token is taken of its logits."""
        import llama_cpp
        import numpy as np

        model = llama_cpp.llama_model_load_from_file(os.fsencode(_file(order)), llama_cpp.llama_model_default_params())
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_threads, settings.n_threads_batch = order.context, order.threads, order.threads
        context = llama_cpp.llama_init_from_model(model, settings)
        size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

        def generate(count: int, told: Callable[[Token], None]) -> None:
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
            given = list(order.tokens)
            for _ in range(count):
                numbers = (llama_cpp.llama_token * len(given))(*given)
                if failed := llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(numbers, len(given))):
                    raise SystemExit(f"llama_decode failed: {failed}")
                logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (size,))
                given = [int(logits.argmax())]
                told(given[0])

        return generate


PRODUCTS: Final[Mapping[str, Product]] = MappingProxyType(
    {
        "ours": Ours(),
        "fused": OursFused(),
        "engine": OurEngine(),
        "stock": Stock(),
        "eager": Eager(),
        "genai": OnnxGenAi(),
        "llama.cpp": LlamaCpp(),
    }
)


def _file(order: Order) -> Path:
    """The file of a product that has one."""
    return Path(order.place, "model.gguf" if order.product == "llama.cpp" else "model.pte")


def _run(command: list[str]) -> None:
    """Run a product's own command; its output goes to stderr."""
    done = subprocess.run(command, check=False, stdout=sys.stderr)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")


# -- the processes ---------------------------------------------------------------------------------------------------

#: CPU seconds of the process, and seconds by the clock.
Stamp: TypeAlias = tuple[float, float]


def _now() -> Stamp:
    return time.process_time(), time.perf_counter()


def make(order: Order) -> dict[str, Any]:
    """Make a file: CPU seconds of the whole command, imports included, and bytes of what it wrote."""
    PRODUCTS[order.product].make(order)
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    written = sum(path.stat().st_size for path in Path(order.place).rglob("*") if _counts(path))
    return {"cpu": sum(part.ru_utime + part.ru_stime for part in used), "bytes": written}


def _counts(path: Path) -> bool:
    """True for what has weights, and not for tokenizers and settings."""
    return path.is_file() and path.suffix not in (".json", ".jinja")


def run(order: Order) -> dict[str, Any]:
    """Generate: see `language_models.py` for what is measured."""
    product = PRODUCTS[order.product]
    product.start(order)
    _forget_peak()
    before, began = _status("VmRSS"), _now()
    generate = product.open(order)
    _, (first, *_) = _generated(generate, 1)
    found: dict[str, Any] = {"first": _between(began, first), "tokens": [], "times": []}
    for _ in range(order.repeats):
        began = _now()
        tokens, stamps = _generated(generate, order.count)
        found["tokens"] = tokens
        found["times"].append([_between(*pair) for pair in zip([began, *stamps], stamps, strict=False)])
    return found | {"peak": _status("VmHWM") - before, "versions": versions(product)}


def _generated(generate: Generate, count: int) -> tuple[list[Token], list[Stamp]]:
    """New tokens, and the times when each was there."""
    tokens: list[Token] = []
    stamps = []

    def told(token: Token) -> None:
        stamps.append(_now())
        tokens.append(token)

    generate(count, told)
    if len(tokens) != count:
        raise SystemExit(f"{len(tokens)} tokens instead of {count}: the text ended, or a token has no text")
    return tokens, stamps


def _between(begin: Stamp, end: Stamp) -> Stamp:
    return end[0] - begin[0], end[1] - begin[1]


def versions(product: Product) -> dict[str, str]:
    """Package -> version, of those that are installed."""
    found = {}
    for package in product.packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _forget_peak() -> None:
    """What the process held at most counts from now on (Linux, proc(5))."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(field: str) -> int:
    """Bytes, by /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    """One step."""
    step, text = sys.argv[1:]
    order = Order(**json.loads(text))
    result = {"make": make, "run": run}[step](order)
    print(f"\n{json.dumps(result)}")


def command(python: str, step: str, order: Order) -> list[str]:
    """The command of a step."""
    return [python, __file__, step, json.dumps(asdict(order))]


if __name__ == "__main__":
    main()
