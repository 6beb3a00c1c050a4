"""Inference, side by side in one run: eager PyTorch, and the files of stock ExecuTorch and of DelegateKit.

Both files run in the stock runtime.

    python benchmarks/inference.py
    python benchmarks/inference.py --models vit-base --rounds 20

One thread, rounds interleaved, median CPU milliseconds of a call; the ratios are what counts on a shared machine.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

import delegatekit
from delegatekit_conformance.models import MODELS, build_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    from executorch.extension.pybindings import _C

    _C._unsafe_reset_threadpool(1)
    print("| model | eager ms | stock ms | ours ms | stock / eager | ours / eager | ours / stock |")
    print("|---|---|---|---|---|---|---|")
    for name in arguments.models:
        print(row(name, measure(name, arguments.rounds)), flush=True)


def measure(name: str, rounds: int) -> dict[str, float]:
    """Median CPU milliseconds of each engine."""
    case = build_model(name)
    with torch.no_grad():
        program = torch.export.export(case.module, case.inputs, strict=False)
    with tempfile.TemporaryDirectory() as folder:
        stock, ours = Path(folder) / "stock.pte", Path(folder) / "ours.pte"
        lower_stock(program, stock)
        delegatekit.lower(program, backends=["xnnpack"]).save(ours)
        engines: dict[str, Callable[[], Any]] = {
            "eager": lambda: case.module(*case.inputs),
            "stock": runner(stock, case.inputs),
            "ours": runner(ours, case.inputs),
        }
        times: dict[str, list[float]] = {engine: [] for engine in engines}
        for engine in engines.values():
            call(engine)
        for _ in range(rounds):
            for engine_name, engine in engines.items():
                times[engine_name].append(call(engine))
    return {engine: 1e3 * statistics.median(values) for engine, values in times.items()}


def call(function: Callable[[], Any]) -> float:
    start = time.process_time()
    with torch.no_grad():
        function()
    return time.process_time() - start


def runner(path: Path, inputs: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
    from executorch.extension.pybindings import _C

    program = _C._load_program(str(path))
    method = program.load_method("forward")
    return lambda: method(inputs, clone_outputs=False)


def lower_stock(program: Any, path: Path) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    with path.open("wb") as file:
        edge.to_executorch().write_to_file(file)


def row(name: str, times: dict[str, float]) -> str:
    eager, stock, ours = (times[engine] for engine in ("eager", "stock", "ours"))
    cells = [name, *(f"{value:.1f}" for value in (eager, stock, ours))]
    return "| " + " | ".join([*cells, f"{stock / eager:.2f}", f"{ours / eager:.2f}", f"{ours / stock:.2f}"]) + " |"


if __name__ == "__main__":
    main()
