"""Lowering language models of growing size, up to some that are larger than memory: CPU seconds and peak memory.

    python benchmarks/large_model.py --sizes 0.1b 0.5b 1b
    python benchmarks/large_model.py --sizes 8b --folder /mnt/large     # needs 16 GB for the model, and 6 for the file
    python benchmarks/large_model.py --sizes 1b --backend vulkan --scheme weights-int4

Each size is a Llama with random bfloat16 weights, which is written to the folder shard by shard (and kept there), and
lowered by `delegatekit lower-llm --external` in a process of its own, one thread. Memory is the most that the process
has at a time: `own` is what no file backs; pages of mapped files come on top, and are dropped when memory is short.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

#: Name -> hidden size, intermediate size, layers, heads, heads of keys, vocabulary, tied embeddings. The last two are
#: those of Llama 3.2 1B and Llama 3.1 8B.
SIZES: dict[str, tuple[int, int, int, int, int, int, bool]] = {
    "0.1b": (768, 2048, 12, 12, 4, 32000, False),
    "0.5b": (1280, 3456, 24, 20, 4, 32000, False),
    "1b": (2048, 8192, 16, 32, 8, 128256, True),
    "8b": (4096, 14336, 32, 32, 8, 128256, False),
}
SHARD_BYTES = 2 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=["0.1b", "0.5b", "1b"])
    parser.add_argument("--backend", default="xnnpack")
    parser.add_argument("--scheme", default="int8-dynamic-int4")
    parser.add_argument("--more", nargs="*", default=[], help="more options of lower-llm, without their first dashes")
    parser.add_argument("--folder", type=Path, help="where models are kept (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        rows = []
        print("| model | weights | file | CPU s | CPU s per GB | own memory | largest layer |\n" + "|---" * 7 + "|")
        for size in arguments.sizes:
            folder = (arguments.folder or Path(temporary)) / size
            if not (folder / "config.json").exists():
                make(folder, size)
            options = ["-b", arguments.backend, "--scheme", arguments.scheme, "--embedding-bits", "8", "--external"]
            found = lowered(folder, [*options, *(f"--{option}" for option in arguments.more)])
            rows.append({"size": size, "backend": arguments.backend, **found})
            print(row(size, found), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


def row(size: str, found: dict[str, Any]) -> str:
    gigabytes = found["weights"] / 1e9
    cells = [size, f"{gigabytes:.2f} GB", f"{found['file'] / 1e9:.2f} GB", f"{found['cpu']:.0f}"]
    cells += [f"{found['cpu'] / gigabytes:.1f}", f"{found['own'] >> 20} MiB", f"{largest(size) >> 20} MiB"]
    return "| " + " | ".join(cells) + " |"


def largest(size: str) -> int:
    """Bytes of the largest layer as it is stored: the embedding, or the head."""
    hidden, _, _, _, _, vocabulary, _ = SIZES[size]
    return 2 * hidden * vocabulary


def make(folder: Path, size: str) -> None:
    """Write a random model, one shard in memory at a time; config.json comes last."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    hidden, between, layers, heads, groups, vocabulary, tied = SIZES[size]
    config = AutoConfig.for_model(
        "llama",
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=between,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=8192,
        tie_word_embeddings=tied,
        dtype="bfloat16",
    )
    with torch.device("meta"):
        auto: Any = AutoModelForCausalLM
        model = auto.from_config(config)
    shards: list[dict[str, torch.Size]] = [{}]
    for name, parameter in model.named_parameters():
        if 2 * sum(shape.numel() for shape in (*shards[-1].values(), parameter.shape)) > SHARD_BYTES and shards[-1]:
            shards.append({})
        shards[-1][name] = parameter.shape
    folder.mkdir(parents=True, exist_ok=True)
    generator, places = torch.Generator().manual_seed(0), {}
    for number, shapes in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors = {key: torch.empty(shape, dtype=torch.bfloat16) for key, shape in shapes.items()}
        for tensor in tensors.values():
            if tensor.dim() == 1:
                tensor.fill_(1)
            else:
                tensor.normal_(0, 0.02, generator=generator)
        save_file(tensors, folder / name, metadata={"format": "pt"})
        places.update(dict.fromkeys(shapes, name))
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config.save_pretrained(folder)


def lowered(folder: Path, options: list[str]) -> dict[str, Any]:
    """Lower a folder's model, beside it, and measure that; the file is removed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DELEGATEKIT_COMPILED": "off"}
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        output = Path(place, "model.pte")
        command = [sys.executable, "-m", "delegatekit", "lower-llm", str(folder), *options, "-o", str(output)]
        before, start = _cpu_seconds(), time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        peaks = {"RssAnon": 0, "RssFile": 0}
        thread = threading.Thread(target=_watch, args=(process, peaks))
        thread.start()
        process.wait()
        thread.join()
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        return {
            "cpu": _cpu_seconds() - before,
            "wall": time.monotonic() - start,
            "own": peaks["RssAnon"],
            "mapped": peaks["RssFile"],
            "weights": sum(file.stat().st_size for file in folder.glob("*.safetensors")),
            "file": sum(file.stat().st_size for file in Path(place).glob("model.*")),
        }


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch(process: subprocess.Popen[bytes], peaks: dict[str, int]) -> None:
    """Note the most memory that a process has, in bytes."""
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            return
        for name, peak in peaks.items():
            peaks[name] = max(peak, int(lines.get(name, "0 kB").split()[0]) * 1024)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
