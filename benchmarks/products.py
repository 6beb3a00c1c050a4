"""Rate at which XNNPACK multiplies matrices, and the lower bound of a transformer's time that follows from it.

    python benchmarks/products.py [--models vit-base bert-base] [--rounds 30]

Products with a constant weight are nearly all that a transformer computes. The rate is that of the fastest product
among some that fit into the cache, with as many rows as the model's own; in XNNPACK (the stock runtime) and in eager
(PyTorch's MKL). "Floor" is the time of all of the model's products at XNNPACK's rate: what a lowering would reach in
which they wait for no memory, and nothing else is computed, not even attention's own products. Single-threaded CPU
time of the fastest call, all calls interleaved.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from engines import ENGINES, TRANSFORMERS
from runtime import interleaved, markdown_table

from delegatekit_conformance.models import ModelCase, build_model

#: Rows, inputs and outputs of a product.
Size = tuple[int, int, int]

#: Outputs of the products whose rate is measured; their inputs are the model's.
_OUTPUTS = (256, 384, 512, 768, 1152)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=TRANSFORMERS, default=TRANSFORMERS)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = []
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(name, Path(folder), arguments.rounds))
    header = ["model", "GFLOP", "GFLOP/s: eager", "XNNPACK", "floor ms", "ours ms", "stock ms"]
    print(markdown_table([*header, "floor / stock", "ours / stock"], rows))


def row(name: str, folder: Path, rounds: int) -> list[str]:
    """The table's row of a model."""
    case = build_model(name)
    sizes = products(case)
    (rows, inputs, _), _ = sizes.most_common(1)[0]
    calls: dict[tuple[str, int], Callable[[], object]] = {}
    for engine in ("ours", "stock"):
        calls[engine, 0] = _call(engine, case, folder / f"{engine}.pte")
    for engine in ("whole", "eager"):
        for outputs in _OUTPUTS:
            calls[engine, outputs] = _call(engine, _product(rows, inputs, outputs), folder / f"{outputs}.pte")
    # The first call is not counted.
    times = {key: 1e3 * min(found[1:]) for key, found in interleaved(calls, rounds + 1, time.process_time).items()}
    eager, fastest = (
        max(2e-6 * rows * inputs * outputs / times[engine, outputs] for outputs in _OUTPUTS)
        for engine in ("eager", "whole")
    )
    work = sum(count * 2e-9 * math.prod(size) for size, count in sizes.items())
    floor, ours, stock = 1e3 * work / fastest, times["ours", 0], times["stock", 0]
    cells = [name, f"{work:.1f}", *(f"{value:.0f}" for value in (eager, fastest, floor, ours, stock))]
    return [*cells, f"{floor / stock:.2f}", f"{ours / stock:.2f}"]


def products(case: ModelCase) -> Counter[Size]:
    """Number of products of rows with a constant weight in the model, by size."""
    sizes: Counter[Size] = Counter()
    for node in case.export().graph.nodes:
        if node.target is torch.ops.aten.linear.default:
            outputs, inputs = node.args[1].meta["val"].shape
            sizes[math.prod(node.args[0].meta["val"].shape[:-1]), inputs, outputs] += 1
    return sizes


def _product(rows: int, inputs: int, outputs: int) -> ModelCase:
    return ModelCase("product", torch.nn.Linear(inputs, outputs).eval(), (torch.randn(rows, inputs),))


def _call(engine: str, case: ModelCase, path: Path) -> Callable[[], object]:
    ENGINES[engine].build(case, path, int8=False)
    ENGINES[engine].start(1)
    return ENGINES[engine].load(path, case.inputs, case)


if __name__ == "__main__":
    main()
