"""Inference side by side: our XNNPACK delegate and other engines, in time and memory.

    python benchmarks/runtime.py                                  all models in float, with one thread and with two
    python benchmarks/runtime.py --int8                           the same with int8 weights and activations
    python benchmarks/runtime.py --engines ours whole             what is gained by products in blocks
    python benchmarks/runtime.py --models minilm --engines ours stock eager --threads 1 --rounds 30

Each model's engines run in one process, their calls interleaved. With one thread, CPU time is compared, which does not
depend on who else uses the machine; with more, wall time. Medians, and their ratios, are what counts.
Memory is measured in a process for each engine: its growth by loading and one call.

ONNX Runtime and OpenVINO come with `pip install -r requirements-benchmarks.txt`; `make runtime` does that.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import logging
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from engines import ENGINES, Files, Tensors

from delegatekit import pte
from delegatekit_conformance.models import MODELS, build_model
from delegatekit_executorch_backends.targets import SYSTEMS

INT8_MODELS = ("efficientnet-lite0", "mobilenet-v2", "resnet-50", "minilm", "vit-base")
_NEEDS = {"onnxruntime": "onnxruntime", "openvino": "openvino", "auto": "delegatekit_openvino"}

Key = TypeVar("Key")

#: Engine -> what was measured, by name.
Figures: TypeAlias = dict[str, dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=list(MODELS))
    parser.add_argument("--engines", nargs="*", choices=list(ENGINES))
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    if arguments.step:
        step, name, folder = arguments.step
        result = _STEPS[step](name, Files(Path(folder)), arguments)
        (Path(folder) / "result.json").write_text(json.dumps(result))
        return
    models = arguments.models or (INT8_MODELS if arguments.int8 else list(MODELS))
    engines = arguments.engines or list(available())
    everything = {name: measure(name, engines, arguments) for name in progress(models)}
    for threads in arguments.threads:
        print(f"\n{latency_title(threads)}\n")
        print(latency_table({name: figures[str(threads)] for name, figures in everything.items()}, engines))
    print("\nMemory\n")
    print(memory_table({name: figures["memory"] for name, figures in everything.items()}, engines))
    if arguments.json:
        arguments.json.write_text(json.dumps(everything, indent=1))


def available() -> Iterator[str]:
    """The engines whose packages, or compiler, are there; says on stderr which are not. "whole" only if it is named."""
    for name in ENGINES:
        if name == "whole":
            continue
        package = _NEEDS.get(name)
        if package is not None and importlib.util.find_spec(package) is None:
            print(f"{name} is left out: pip install -r requirements-benchmarks.txt", file=sys.stderr)
        elif name == "compile" and not (shutil.which("g++") or shutil.which("clang++")):
            print("compile is left out: there is no C++ compiler", file=sys.stderr)
        else:
            yield name


def progress(models: Sequence[str]) -> Iterator[str]:
    for name in models:
        print(f"{name} ...", file=sys.stderr, flush=True)
        yield name


# -- one model -------------------------------------------------------------------------------------------------------


def measure(name: str, engines: Sequence[str], arguments: argparse.Namespace) -> dict[str, Figures]:
    """Threads (as text) -> figures of each engine; and "memory"."""
    with tempfile.TemporaryDirectory() as folder:
        built = _run("build", name, folder, engines, arguments, 1)
        results = {str(threads): _run("time", name, folder, built, arguments, threads) for threads in arguments.threads}
        results["memory"] = {
            engine: _run("memory", name, folder, [engine], arguments, 1) for engine in built if ENGINES[engine].suffix
        }
        return results


def _run(step: str, name: str, folder: str, engines: Sequence[str], arguments: argparse.Namespace, threads: int) -> Any:
    """A step in a process of its own."""
    command = [sys.executable, __file__, "--step", step, name, folder, "--rounds", str(arguments.rounds)]
    command += ["--threads", str(threads), *(["--int8"] if arguments.int8 else []), "--engines", *engines]
    # OpenMP's threads wait by spinning otherwise, and count as CPU time.
    settings = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    if "auto" in engines:
        SYSTEMS["executorch.openvino"].name_library()
    # Nobody can tell ExecuTorch's OpenVINO delegate how many threads to use: it takes all cores that it sees.
    cores = sorted(os.sched_getaffinity(0))[-threads:]
    pinned = partial(os.sched_setaffinity, 0, cores)
    settings = os.environ | settings
    done = subprocess.run(command, check=False, env=settings, capture_output=True, text=True, preexec_fn=pinned)
    if done.returncode:
        raise SystemExit(f"{step} {name} failed:\n{done.stderr[-3000:]}")
    return json.loads((Path(folder) / "result.json").read_text())


def _build(name: str, files: Files, arguments: argparse.Namespace) -> list[str]:
    """Write the files; the engines that can."""
    case = build_model(name)
    torch.save(case.inputs, files.inputs())
    built = []
    for engine in arguments.engines:
        with contextlib.suppress(NotImplementedError), contextlib.redirect_stdout(sys.stderr):
            ENGINES[engine].build(case, files.of(ENGINES[engine]), int8=arguments.int8)
            built.append(engine)
    return built


def _time(name: str, files: Files, arguments: argparse.Namespace) -> Figures:
    """Median milliseconds of a call, and the signal to noise ratio to eager."""
    (threads,) = arguments.threads
    case = build_model(name)
    calls = {}
    for engine in arguments.engines:
        ENGINES[engine].start(threads)
        calls[engine] = ENGINES[engine].load(files.of(ENGINES[engine]), case.inputs, case)
    torch.set_num_threads(threads)
    with torch.no_grad():
        expected = (case.module(*case.inputs),)
    figures: Figures = {engine: {"sqnr": _sqnr(call(), expected)} for engine, call in calls.items()}
    if "auto" in figures:
        (plan,) = pte.read(files.of(ENGINES["auto"])).program.execution_plan
        delegates = Counter(delegate.id.removesuffix("Backend") for delegate in plan.delegates)
        figures["auto"]["took"] = ", ".join(f"{count} {backend}" for backend, count in delegates.items()) or "nothing"
    clock = time.process_time if threads == 1 else time.perf_counter
    for engine, values in interleaved(calls, arguments.rounds, clock).items():
        figures[engine]["ms"] = 1e3 * statistics.median(values)
    return figures


def interleaved(
    calls: Mapping[Key, Callable[[], object]], rounds: int, clock: Callable[[], float]
) -> dict[Key, list[float]]:
    """Seconds of each call in every round, by a clock; the calls of a round follow one another."""
    times: dict[Key, list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            start = clock()
            call()
            times[key].append(clock() - start)
    return times


def _sqnr(outputs: Tensors, expected: Tensors) -> float:
    """Decibels; infinite ones as 999, for JSON."""
    signal = sum(float(want.double().square().sum()) for want in expected)
    noise = sum(
        float((out.double() - want.double()).square().sum()) for out, want in zip(outputs, expected, strict=True)
    )
    return min(999.0, 10 * math.log10(signal / noise)) if noise else 999.0


def _memory(name: str, files: Files, arguments: argparse.Namespace) -> dict[str, float]:
    """MiB by which loading and a call grow the process; of the file; and, of a .pte, what it asks to plan."""
    engine = ENGINES[arguments.engines[0]]
    path = files.of(engine)
    inputs = torch.load(files.inputs())
    engine.start(1)
    before = _resident()
    call = engine.load(path, inputs, None)
    call()
    figures = {"process": _resident() - before, "file": path.stat().st_size / 2**20}
    if engine.suffix == ".pte":
        (plan,) = pte.read(path).program.execution_plan
        figures["planned"] = sum(plan.non_const_buffer_sizes) / 2**20
    return figures


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


_STEPS = {"build": _build, "time": _time, "memory": _memory}


# -- tables ----------------------------------------------------------------------------------------------------------


def latency_title(threads: int) -> str:
    return "One thread, CPU ms" if threads == 1 else f"{threads} threads, ms"


def latency_table(models: Mapping[str, Figures], engines: Sequence[str]) -> str:
    """Ours in ms, in relation to each of the others; auto to the best of all; every engine's noise against eager."""
    others = [engine for engine in engines if engine not in ("ours", "auto")]
    auto = ["auto"] if "auto" in engines else []
    judged = [*auto, *(engine for engine in others if engine not in ("eager", "compile"))]
    header = ["model", "ours ms", *(f"ours / {engine}" for engine in others), "ours / best other"]
    header += [*(["auto / best", "delegates of auto"] if auto else []), "SQNR dB: ours", *judged]
    rows = []
    for name, figures in models.items():
        ours = figures.get("ours", {}).get("ms", math.nan)
        ratios = {engine: ours / figures[engine]["ms"] for engine in others if engine in figures}
        cells = [name, f"{ours:.1f}", *(_cell(ratios.get(engine), "{:.2f}") for engine in others)]
        cells.append(_cell(max(ratios.values(), default=None), "{:.2f}"))
        if auto:
            best = min(found["ms"] for found in figures.values())
            found = figures.get("auto", {})
            cells += [_cell(found["ms"] / best if found else None, "{:.2f}"), found.get("took", "-")]
        noise = {engine: found["sqnr"] for engine, found in figures.items()}
        cells += [_cell(noise.get(engine), "{:.0f}") for engine in ("ours", *judged)]
        rows.append(cells)
    return markdown_table(header, rows)


def memory_table(models: Mapping[str, Mapping[str, Mapping[str, float]]], engines: Sequence[str]) -> str:
    """MiB: files, what .pte files plan, and growth of the process."""
    columns = [
        (what, engine)
        for what in ("file", "planned", "process")
        for engine in engines
        if any(what in figures.get(engine, {}) for figures in models.values())
    ]
    header = ["model, MiB", *(f"{what}: {engine}" for what, engine in columns)]
    rows = [
        [name, *(_cell(figures.get(engine, {}).get(what), "{:.1f}") for what, engine in columns)]
        for name, figures in models.items()
    ]
    return markdown_table(header, rows)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
