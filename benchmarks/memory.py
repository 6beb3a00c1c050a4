"""Planned memory, side by side: stock ExecuTorch against DelegateKit on the same exported program.

    python benchmarks/memory.py                            # all models, with XNNPACK and without any backend
    python benchmarks/memory.py --models vit-base --modes runtime

Each lowering runs in a process of its own. Bytes are what the file asks the runtime for, all spaces of the method
together. The bound is the largest sum of bytes that our method has in use at one step: no plan of that method can do
with less. Exit code 1 if a file of ours asks for more than the stock one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from apart import measured

ENGINES = ("stock", "ours")
MODES = ("xnnpack", "runtime")
TITLES = {"xnnpack": "with XNNPACK", "runtime": "without a backend"}
PLANNERS = ("greedy", "best-fit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", help="model names (default: all)")
    parser.add_argument("--modes", nargs="*", choices=MODES, default=MODES)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--measure", nargs=3, metavar=("ENGINE", "MODE", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    from delegatekit_conformance.models import MODELS

    rows = []
    for mode in arguments.modes:
        print(f"\n| {TITLES[mode]} | planned bytes: stock | ours | ours / stock | bound of ours | copies saved: ours |")
        print("|---" * 6 + "|")
        for model in arguments.models or MODELS:
            found = {engine: measured(__file__, engine, mode, model) for engine in ENGINES}
            rows.append({"model": model, "mode": mode, **found})
            print(row(model, found["stock"], found["ours"]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    worse = [row for row in rows if row["stock"] and row["ours"] and row["ours"]["planned"] > row["stock"]["planned"]]
    for found in worse:
        print(f"{found['model']} ({found['mode']}): more than stock", file=sys.stderr)
    raise SystemExit(bool(worse))


def row(model: str, stock: Any, ours: Any) -> str:
    cells = [f"{side['planned']:,}" if side else "-" for side in (stock, ours)]
    ratio = f"{ours['planned'] / stock['planned']:.3f}" if stock and ours else "-"
    rest = [f"{ours['bound']:,}", str(ours["saved"])] if ours else ["-", "-"]
    return "| " + " | ".join([model, *cells, ratio, *rest]) + " |"


def measure(engine: str, mode: str, model: str) -> dict[str, Any]:
    """Lower a model with one engine and say what its file asks for."""
    import logging

    import torch

    from delegatekit_conformance.models import build_model

    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    case = build_model(model)
    with torch.no_grad():
        program = torch.export.export(case.module, case.inputs, strict=False)
    return {"stock": measure_stock, "ours": measure_ours}[engine](program, mode)


def measure_stock(program: Any, mode: str) -> dict[str, Any]:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from delegatekit import inspect

    edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()] if mode == "xnnpack" else [])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        with path.open("wb") as file:
            edge.to_executorch().write_to_file(file)
        return {"planned": sum(inspect(path).methods[0].memory)}


def measure_ours(program: Any, mode: str) -> dict[str, Any]:
    import delegatekit
    from delegatekit import MemoryOptions

    backends = ["xnnpack"] if mode == "xnnpack" else []
    method = delegatekit.report(delegatekit.lower(program, backends=backends)).methods[0]
    planned = {
        planner: delegatekit.report(
            delegatekit.lower(program, backends=backends, memory=MemoryOptions(planner))
        ).methods[0]
        for planner in PLANNERS
    }
    plain = delegatekit.lower(program, backends=backends, memory=MemoryOptions(in_place=False, views=False))
    return {
        "planned": method.arena_size,
        "bound": sum(arena.bound + arena.overread for arena in method.arenas),
        "saved": delegatekit.report(plain).methods[0].fallback_calls - method.fallback_calls,
        "unshared": delegatekit.report(plain).methods[0].arena_size,
        **{planner: found.arena_size for planner, found in planned.items()},
    }


if __name__ == "__main__":
    main()
