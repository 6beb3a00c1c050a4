"""The Core ML backend on the host: its interpreter beside eager mode, and a breakdown of lowering time.

    python benchmarks/coreml_interpreter.py
    python benchmarks/coreml_interpreter.py --models vit-base --rounds 9

CPU seconds, one thread. Each model runs in a process of its own, its calls and eager's in turns; a call of the
interpreter is one of a file that is loaded. Imports are not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from apart import measured

MODELS = ("mobilenet-v2", "resnet-50", "vit-base")
PRECISIONS = ("float16", "float32")
#: Parts of lowering: what is called for each, and its name in the table.
PARTS = {
    "coremltools' builder": ("delegatekit_coreml.ir.builder", "FunctionBuilder", "call"),
    "coremltools' writer": ("delegatekit_coreml.compile", "", "model_of"),
    "archive": ("delegatekit_coreml.compile", "", "write_package"),
    "the backend in all": ("delegatekit_coreml.compile", "", "compile_methods"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure, arguments.rounds)))
        return
    parts = [name for name in PARTS if name != "the backend in all"]
    print(
        "| model | precision | CPU s: interpreter | eager | ratio | largest error | lowering CPU s | load CPU s | ",
        end="",
    )
    print(" | ".join(f"share of {name}" for name in parts), "| core |")
    print("|---" * (9 + len(parts)) + "|")
    for name in arguments.models:
        for precision in PRECISIONS:
            row = run(name, precision, arguments.rounds)
            shares = [f"{row['parts'][part] / row['lower']:.0%}" for part in parts]
            core = f"{1 - row['parts']['the backend in all'] / row['lower']:.0%}"
            times = [f"{row['ours']:.3f}", f"{row['eager']:.3f}", f"{row['ours'] / row['eager']:.2f}"]
            cells = [name, precision, *times, f"{row['error']:.1e}", f"{row['lower']:.2f}", f"{row['load']:.2f}"]
            print(f"| {' | '.join([*cells, *shares, core])} |", flush=True)


def run(name: str, precision: str, rounds: int) -> dict[str, Any]:
    """One measurement in a fresh process."""
    return measured(__file__, name, precision, more=["--rounds", str(rounds)]) or sys.exit(1)


def measure(name: str, precision: str, rounds: int) -> dict[str, Any]:
    """Lower, load, run, compare and time a model."""
    import torch

    import delegatekit
    from delegatekit_conformance.models import build_model

    torch.set_num_threads(1)
    case = build_model(name)
    exported = case.export()
    warm()
    spent = {part: timed(*place) for part, place in PARTS.items()}
    start = time.process_time()
    program = delegatekit.lower(exported, backends=["coreml"], options={"coreml": {"precision": precision}})
    buffer = program.buffer
    lowering = time.process_time() - start
    start = time.process_time()
    method = delegatekit.load(buffer)["forward"]
    loading = time.process_time() - start
    calls: dict[str, list[float]] = {"ours": [], "eager": []}
    with torch.no_grad():
        for _ in range(rounds):
            for side, call in (("eager", case.module), ("ours", method)):
                start = time.process_time()
                result = call(*case.inputs)
                calls[side].append(time.process_time() - start)
        wanted = case.module(*case.inputs)
    return {
        "lower": lowering,
        "load": loading,
        "parts": {part: sum(found) for part, found in spent.items()},
        "error": float((result - wanted).abs().max() / wanted.abs().max()),
        **{side: statistics.median(found) for side, found in calls.items()},
    }


def warm() -> None:
    """Lower something small, so that imports are not counted."""
    import torch

    import delegatekit

    model, inputs = torch.nn.Sequential(torch.nn.Linear(2, 2)), (torch.ones(1, 2),)
    delegatekit.load(delegatekit.lower(model, inputs, backends=["coreml"]).buffer)["forward"](*inputs)


def timed(module: str, owner: str, name: str) -> list[float]:
    """The CPU seconds of each call of a function from now on."""
    import importlib

    found: list[float] = []
    place: Any = importlib.import_module(module)
    place = getattr(place, owner) if owner else place
    function: Callable[..., Any] = getattr(place, name)

    @wraps(function)
    def call(*arguments: Any, **more: Any) -> Any:
        start = time.process_time()
        try:
            return function(*arguments, **more)
        finally:
            found.append(time.process_time() - start)

    setattr(place, name, call)
    return found


if __name__ == "__main__":
    main()
