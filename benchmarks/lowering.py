"""Lowering, side by side: stock ExecuTorch against DelegateKit on the same exported program.

    python benchmarks/lowering.py                       # all models
    python benchmarks/lowering.py --models vit-base
    python benchmarks/lowering.py --chains 100 1000 10000
    python benchmarks/lowering.py --backend vulkan      # both sides for Vulkan (or coreml) instead of XNNPACK
    python benchmarks/lowering.py --pipeline            # both in ExecuTorch's pipeline: its partitioner, and ours
    python benchmarks/lowering.py --backend qnn --models mobilenet-v2    # quantized, images of 96 x 96

Each measurement runs in a process of its own, one thread, one after the other. CPU seconds cover everything between
the exported program and the written file, also in processes that were started for it; imports and the export are not
counted (but for QNN, on both sides: stock's function for it exports again). Memory is the peak of the process above
what it held before lowering (imports, weights, exported program).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from apart import measured

PATTERNS = ("all", "alternate")
#: Backend -> module and name of stock's partitioner.
PARTITIONERS = {
    "xnnpack": ("executorch.backends.xnnpack.partition.xnnpack_partitioner", "XnnpackPartitioner"),
    "vulkan": ("executorch.backends.vulkan.partitioner.vulkan_partitioner", "VulkanPartitioner"),
    "coreml": ("executorch.backends.apple.coreml.partition", "CoreMLPartitioner"),
    "qnn": ("qnn_stock", ""),
}
#: Backends that lower quantized programs here: the scheme, and the size of images.
QUANTIZED = {"qnn": ("8a8w", 96)}
#: What a backend of ours imports when it first lowers something.
LIBRARIES = {"coreml": "coremltools.converters.mil"}
#: Tells the processes that measure which backend is meant.
BACKEND = "DELEGATEKIT_BENCHMARK_BACKEND"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", help="model names (default: all, unless --chains is given)")
    parser.add_argument("--chains", nargs="*", type=int, help="lengths of synthetic chains")
    parser.add_argument("--stock-chain-limit", type=int, default=300, help="longest alternating chain given to stock")
    parser.add_argument("--backend", choices=PARTITIONERS, default="xnnpack")
    parser.add_argument("--pipeline", action="store_true", help="ours as a partitioner of ExecuTorch's pipeline")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--measure", nargs=2, metavar=("ENGINE", "SUBJECT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ[BACKEND] = os.environ.get(BACKEND, arguments.backend)
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    ours = "pipeline" if arguments.pipeline else "ours"
    rows = []
    if arguments.models is not None or arguments.chains is None:
        from delegatekit_conformance.models import MODELS

        rows += table("model", arguments.models or list(MODELS), None, ours)
    for pattern in PATTERNS if arguments.chains is not None else ():
        lengths = arguments.chains or [100, 300, 1000, 3000, 10000]
        # Stock is quadratic in the number of delegates: its long alternating chains take hours.
        limit = arguments.stock_chain_limit if pattern == "alternate" else 3000
        rows += table(f"chain, {pattern} delegated", [f"chain:{pattern}:{length}" for length in lengths], limit, ours)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


def table(title: str, subjects: list[str], limit: int | None, ours: str) -> list[dict[str, Any]]:
    """Measure subjects with stock and with an engine of ours, and print a row each, as Markdown."""
    pairs = ("CPU s", "peak MiB above start", "file KiB", "delegates", "fallback calls")
    first, *others = (f"{pair}: stock | ours" for pair in pairs)
    print(f"\n| {title} | {first} | ratio | {' | '.join(others)} |")
    print("|---" * (2 + 2 * len(pairs)) + "|")
    rows = []
    for subject in subjects:
        found: dict[str, Any] = {}
        for engine in ("stock", ours):
            too_long = limit is not None and int(subject.rpartition(":")[2]) > limit
            found[engine] = None if engine == "stock" and too_long else measured(__file__, engine, subject)
        rows.append({"subject": subject, **found})
        print(row(subject, found["stock"], found[ours]), flush=True)
    return rows


def row(subject: str, stock: Any, ours: Any) -> str:
    def both(key: str, form: str = "{}") -> list[str]:
        return [form.format(side[key]) if side else "-" for side in (stock, ours)]

    factor = stock["cpu"] / ours["cpu"] if stock and ours else None
    ratio = "-" if factor is None else f"1/{factor:.0f}" if factor > 2 else f"{1 / factor:.2f}"
    cells = [subject.replace("chain:", "").replace(":", " "), *both("cpu", "{:.2f}"), ratio, *both("peak_mib")]
    if ours and ours["elsewhere"]:
        cells[2] += f" (the vendor's library: {ours['elsewhere']:.2f})"
    return "| " + " | ".join([*cells, *both("file_kib"), *both("delegates"), *both("fallback")]) + " |"


def measure(engine: str, subject: str) -> dict[str, Any]:
    """Export the subject, lower it with one engine, write it, and say what that took."""
    import logging

    import torch

    logging.disable(logging.WARNING)
    sys.setrecursionlimit(200_000)
    torch.set_num_threads(1)
    module, inputs = build(subject)
    if os.environ[BACKEND] in QUANTIZED:
        module, inputs = quantized(module, inputs, os.environ[BACKEND])
    with torch.no_grad():
        program = torch.export.export(module, inputs, strict=False)
    lower = {"stock": lower_stock, "ours": lower_ours, "pipeline": lower_in_pipeline}[engine]
    prepare(engine)
    path = Path(tempfile.mkdtemp()) / "model.pte"
    before = resident()
    start = used()
    lower(program, path)
    here, elsewhere = (end - begin for begin, end in zip(start, used(), strict=True))
    highest = peak()
    from delegatekit import inspect

    found = inspect(path)
    method = found.methods[0]
    answer = {
        "cpu": round(here + elsewhere, 3),
        "elsewhere": round(elsewhere, 3),
        "peak_mib": max(0, highest - before) >> 20,
        "file_kib": path.stat().st_size >> 10,
        "delegates": len(method.delegates),
        "fallback": sum(method.operators.values()),
    }
    path.unlink()
    path.parent.rmdir()
    return answer


def quantized(module: Any, inputs: tuple[Any, ...], backend: str) -> tuple[Any, tuple[Any, ...]]:
    """The module on smaller images, quantized by stock's quantizer: the same program for both sides."""
    import torch

    scheme, size = QUANTIZED[backend]
    inputs = tuple(torch.nn.functional.interpolate(item, (size, size)) for item in inputs)
    stock = importlib.import_module(PARTITIONERS[backend][0])
    return stock.quantized(module, [inputs], scheme), inputs


def prepare(engine: str) -> None:
    """Import what the engine needs, so that imports are not counted."""
    if engine != "ours":
        import executorch.exir  # noqa: F401

        importlib.import_module(PARTITIONERS[os.environ[BACKEND]][0])
    if engine == "pipeline":
        importlib.import_module("delegatekit_executorch.partitioning")
    if engine != "stock":
        import delegatekit
        import delegatekit.pipeline

        delegatekit.backends()
        if os.environ[BACKEND] in LIBRARIES:
            importlib.import_module(LIBRARIES[os.environ[BACKEND]])


def build(subject: str) -> tuple[Any, tuple[Any, ...]]:
    import torch

    if not subject.startswith("chain:"):
        from delegatekit_conformance.models import build_model

        case = build_model(subject)
        return case.module, case.inputs
    _, pattern, length = subject.split(":")

    class Chain(torch.nn.Module):
        """Elementwise operators; "alternate": every other one (atan) is in neither XNNPACK partitioner's table."""

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            a, b = x, y
            for index in range(int(length)):
                if pattern == "alternate" and index % 2:
                    c = torch.atan(a)
                else:
                    c = a + b if index % 4 else a * b
                a, b = c, (a if index % 5 else b)
            return a

    return Chain(), (torch.randn(4), torch.randn(4))


def lower_stock(program: Any, path: Path) -> None:
    module, name = PARTITIONERS[os.environ[BACKEND]]
    if not name:
        importlib.import_module(module).lower(program, path)
        return
    write(program, path, getattr(importlib.import_module(module), name)())


def lower_in_pipeline(program: Any, path: Path) -> None:
    from delegatekit_executorch import partitioner

    write(program, path, partitioner(os.environ[BACKEND]))


def write(program: Any, path: Path, partitioner: Any) -> None:
    """Lower by ExecuTorch's pipeline."""
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    edge = to_edge_transform_and_lower(
        program, partitioner=[partitioner], compile_config=EdgeCompileConfig(_check_ir_validity=True)
    )
    with path.open("wb") as file:
        edge.to_executorch().write_to_file(file)


def lower_ours(program: Any, path: Path) -> None:
    import delegatekit

    backend = os.environ[BACKEND]
    if backend in QUANTIZED:
        delegatekit.lower(program.module(), program.example_inputs[0], backends=[backend]).save(path)
    else:
        delegatekit.lower(program, backends=[backend]).save(path)


def used() -> tuple[float, float]:
    """CPU seconds of this process, and of those that it started, whether they have ended or not."""
    import psutil

    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = (child.cpu_times() for child in psutil.Process().children(recursive=True))
    return time.process_time(), ended.ru_utime + ended.ru_stime + sum(item.user + item.system for item in living)


def peak() -> int:
    """The most bytes that were resident; `getrusage` counts those of the process that started this one, too."""
    _, _, rest = Path("/proc/self/status").read_text().partition("VmHWM:")
    return int(rest.split()[0]) << 10


def resident() -> int:
    """Resident bytes now; the process's peak so far must not be above it, or it would hide the peak of lowering."""
    import psutil

    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    main()
