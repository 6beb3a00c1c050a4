"""Sizes that change, control flow, state and recurrence, side by side: stock ExecuTorch against DelegateKit.

    python benchmarks/semantics.py
    python benchmarks/semantics.py --models "early exit" "u-net, any size" --rounds 20

The models are `SEMANTIC_MODELS` of the conformance package, and the tiny Llama with the methods `prefill` and `decode`.
Each lowering runs in a process of its own, one after the other: CPU seconds from the exported program to the written
file. Then both files run in the stock runtime in one process, one thread, rounds interleaved: the median CPU
milliseconds of a round, which is each of the case's calls once (of other sizes, or other branches of the control
flow). Each result is compared with eager. Where one side fails, its cells are "-" and the reason is below.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENGINES = ("stock", "ours")
GENERATION = "tiny llama, prefill and decode"
#: Largest difference from eager, relative to the largest value, that passes for float32 rounding.
ROUNDING = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", help="model names (default: all)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--measure", nargs=3, metavar=("ENGINE", "MODEL", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument("--time", nargs=2, metavar=("MODEL", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        engine, name, path = arguments.measure
        print(json.dumps(measure(engine, name, Path(path))))
    elif arguments.time:
        name, folder = arguments.time
        print(json.dumps(time_both(name, Path(folder), arguments.rounds)))
    else:
        table(arguments.models, arguments.rounds)


def table(names: list[str] | None, rounds: int) -> None:
    """Measure and print a row for each model, as Markdown."""
    from delegatekit_conformance.models import SEMANTIC_MODELS

    pairs = ("lowering CPU s", "delegates", "fallback calls", "planned KiB", "file KiB", "inference CPU ms")
    print("| model |" + "".join(f" {pair}: stock | ours |" for pair in pairs) + " ours / stock |")
    print("|---" * (2 + 2 * len(pairs)) + "|")
    notes = []
    for name in names or [*SEMANTIC_MODELS, GENERATION]:
        with tempfile.TemporaryDirectory() as folder:
            lowered = {engine: run("--measure", engine, name, f"{folder}/{engine}.pte") for engine in ENGINES}
            timed = run("--time", name, folder, "--rounds", str(rounds))
        notes += [f"{name}, {engine}: {lowered[engine]['error']}" for engine in ENGINES if "error" in lowered[engine]]
        notes += [f"{name}: {timed['error']}"] if "error" in timed else timed["notes"]
        print(row(name, lowered, timed), flush=True)
    print("\n" + "\n".join(f"* {note}" for note in notes))


def row(name: str, lowered: dict[str, Any], timed: dict[str, Any]) -> str:
    """One line of the table."""
    cells = [name]
    for key in ("cpu", "delegates", "fallback", "planned", "file"):
        cells += [str(lowered[engine].get(key, "-")) for engine in ENGINES]
    cells += [f"{timed[engine]:.2f}" if engine in timed else "-" for engine in ENGINES]
    cells.append(f"{timed['ours'] / timed['stock']:.2f}" if all(engine in timed for engine in ENGINES) else "-")
    return "| " + " | ".join(cells) + " |"


def run(*arguments: str) -> dict[str, Any]:
    """This script in a fresh process; {"error": reason} if it fails."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, __file__, *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        print(f"{arguments} failed:\n{result.stderr[-4000:]}", file=sys.stderr)
        return {"error": reason(result.stderr) if result.returncode > 0 else f"killed by signal {-result.returncode}"}
    answer: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return answer


def reason(errors: str) -> str:
    """The message of the exception that ended a process: the last line that begins with its name."""
    lines = [line for line in errors.splitlines() if line[:1].isalpha() and "Error" in line.split(":")[0]]
    return (lines or errors.strip().splitlines() or [""])[-1][:300]


def exported(name: str) -> Any:
    """The exported program of a model, or the programs of its methods."""
    from delegatekit_conformance.models import build_model, tiny_llama

    return tiny_llama().export_methods(longest=32) if name == GENERATION else build_model(name).export()


def measure(engine: str, name: str, path: Path) -> dict[str, Any]:
    """Export the model, lower it with one engine, write it, and say what that took."""
    import logging

    import torch

    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    program = exported(name)
    # Imports are not counted.
    if engine == "stock":
        import executorch.backends.xnnpack.partition.xnnpack_partitioner
        import executorch.exir  # noqa: F401
    else:
        import delegatekit.pipeline

        delegatekit.backends()
    start = time.process_time()
    {"stock": lower_stock, "ours": lower_ours}[engine](program, path)
    spent = time.process_time() - start
    from delegatekit import inspect

    methods = inspect(path).methods
    return {
        "cpu": round(spent, 2),
        "delegates": sum(len(method.delegates) for method in methods),
        "fallback": sum(sum(method.operators.values()) for method in methods),
        "planned": sum(sum(method.memory) for method in methods) >> 10,
        "file": path.stat().st_size >> 10,
    }


def lower_stock(program: Any, path: Path) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass

    partitioner: Any = [XnnpackPartitioner()]
    configuration = ExecutorchBackendConfig()
    if isinstance(program, dict):
        partitioner = {name: [XnnpackPartitioner()] for name in program}
        configuration = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
    finished = to_edge_transform_and_lower(program, partitioner=partitioner).to_executorch(configuration)
    with path.open("wb") as file:
        finished.write_to_file(file)


def lower_ours(program: Any, path: Path) -> None:
    import delegatekit

    delegatekit.lower(program, backends=["xnnpack"]).save(path)


def time_both(name: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Median CPU milliseconds of a round of calls for each file that is there and right, and notes on the others."""
    import torch
    from executorch.extension.pybindings import _C

    torch.set_num_threads(1)
    _C._unsafe_reset_threadpool(1)
    eager, subjects = workload(name)
    with torch.no_grad():
        wanted = eager()
    runners: dict[str, Callable[[], list[torch.Tensor]]] = {}
    answer: dict[str, Any] = {"notes": []}
    for engine in ENGINES:
        path = folder / f"{engine}.pte"
        if not path.exists():
            continue
        try:
            runner = subjects(path)
            found = runner()
        except RuntimeError as error:
            answer["notes"].append(f"{name}, {engine}: does not run: {error}")
            continue
        error = max(map(difference, found, wanted))
        if error <= ROUNDING:
            runners[engine] = runner
        else:
            answer["notes"].append(f"{name}, {engine}: wrong, differs from eager by {error:.1e} of the largest value")
    times: dict[str, list[float]] = {engine: [] for engine in runners}
    for _ in range(rounds):
        for engine, runner in runners.items():
            start = time.process_time()
            runner()
            times[engine].append(time.process_time() - start)
    return answer | {engine: 1e3 * statistics.median(values) for engine, values in times.items()}


def difference(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest value; 1 where shapes differ."""
    if found.shape != wanted.shape:
        return 1.0
    return float((found - wanted).abs().max() / wanted.abs().max())


def workload(name: str) -> tuple[Callable[[], list[Any]], Callable[[Path], Callable[[], list[Any]]]]:
    """A round in eager, and a function that makes the round of a file in the stock runtime."""
    import torch
    from executorch.extension.pybindings import _C

    from delegatekit_conformance.models import build_model, tiny_llama

    if name != GENERATION:
        case = build_model(name)
        calls = (case.inputs, *case.calls)

        def calls_of(path: Path) -> Callable[[], list[Any]]:
            method = _C._load_program(str(path)).load_method("forward")
            return lambda: [method(call)[0] for call in calls]

        return lambda: [case.module(*call) for call in calls], calls_of

    module = tiny_llama()
    prompt, tokens = torch.arange(8).view(1, 8), [torch.tensor([[number]]) for number in range(32)]

    def eager() -> list[Any]:
        module.reset()
        return [module(prompt), *map(module, tokens)]

    def generation_of(path: Path) -> Callable[[], list[Any]]:
        program = _C._load_program(str(path))
        prefill, decode = (program.load_method(method) for method in ("prefill", "decode"))
        state = [prefill.get_attribute(buffer) for buffer in module.state]

        def generate() -> list[Any]:
            for buffer in state:
                buffer.zero_()
            return [prefill((prompt,))[0], *(decode((token,))[0] for token in tokens)]

        return generate

    return eager, generation_of


if __name__ == "__main__":
    main()
