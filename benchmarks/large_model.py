"""Lowering language models of growing size, up to some that are larger than memory: CPU seconds and peak memory.

    python benchmarks/large_model.py --sizes 0.1b 0.5b 1b
    python benchmarks/large_model.py --sizes 8b --folder /mnt/large     # needs 16 GB for the model, and 6 for the file
    python benchmarks/large_model.py --sizes 1b --backend vulkan --scheme int4-weight-only

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

from random_language_models import SHAPES, make

#: Name of the command line -> the model's.
SIZES = {"0.1b": "llama-0.1b", "0.5b": "llama-0.5b", "1b": "llama-3.2-1b", "8b": "llama-3.1-8b"}


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
                make(SIZES[size], folder)
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
    shape = SHAPES[SIZES[size]]
    return 2 * shape.hidden * shape.vocabulary


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
