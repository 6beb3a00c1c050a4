"""`-b auto` beside each backend alone and the runtime alone, in ExecuTorch's own runtime.

    python benchmarks/choosing.py                                  seven models and six small networks
    python benchmarks/choosing.py --models minilm detector --backends xnnpack reference --clock wall

A model is tuned and lowered as `delegatekit lower -b auto,NAMES` does it. The file, and those of each backend alone
and of the runtime alone, are then timed by this script, in a process that knows nothing of the tuner: interleaved, the
least of the calls, in CPU seconds of one thread or, with `--clock wall`, by the clock. The ratio of `auto` to the best
of the others must not exceed 1.05: if one does, the script ends with exit code 1. Files that are equal are 1.00.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.append(str(Path(__file__).parents[1] / "tests"))

import torch
from networks import NETWORKS, network
from runtime import markdown_table

import delegatekit
from delegatekit_conformance.models import MODELS, build_model

#: The promise.
LIMIT: Final = 1.05
#: A file whose first calls take so many times as long as those of the quickest is not called again.
_FAR: Final = 3.0
#: Seconds of a first call after which a file is not called to warm up.
_LONG: Final = 1.0
AUTO, ALONE = "auto", "runtime alone"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=[*MODELS, *NETWORKS], default=[*MODELS, *NETWORKS])
    parser.add_argument("--backends", nargs="*", default=["xnnpack", "reference"])
    parser.add_argument("--clock", choices=["CPU", "wall"], default="CPU")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path, help="write the seconds there, too")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    if arguments.step:
        step, name, folder = arguments.step
        result = _STEPS[step](name, Path(folder), arguments)
        (Path(folder) / "result.json").write_text(json.dumps(result))
        return
    found = {}
    for name in arguments.models:
        found[name] = measured(name, arguments)
        print(table({name: found[name]}, arguments.backends).splitlines()[-1], file=sys.stderr, flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=1))
    print(table(found, arguments.backends))
    sys.exit(any(_ratio(figures) > LIMIT for figures in found.values()))


def measured(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds of "auto", of each backend alone and of the runtime alone; "chosen" and "delegates" of auto."""
    with tempfile.TemporaryDirectory() as folder:
        _run("build", name, folder, arguments)
        chosen = json.loads((Path(folder) / "result.json").read_text())
        _run("time", name, folder, arguments)
        figures: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text())
        return figures | chosen


def _run(step: str, name: str, folder: str, arguments: argparse.Namespace) -> None:
    command = [sys.executable, __file__, "--step", step, name, folder, "--rounds", str(arguments.rounds)]
    command += ["--clock", arguments.clock, "--backends", *arguments.backends]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{step} {name} failed:\n{done.stderr[-3000:]}")


def _build(name: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the files, and the inputs."""
    if name in NETWORKS:
        module, inputs = network(name)
    else:
        case = build_model(name)
        module, inputs = case.module, case.inputs
    torch.save(list(inputs), folder / "inputs.pt")
    with torch.no_grad():
        program = torch.export.export(module, tuple(inputs), strict=False)
    found = delegatekit.tune(program, backends=arguments.backends, clock=arguments.clock)
    print(found, file=sys.stderr)
    lowered = delegatekit.lower(program, **delegatekit.placement(program, measurements=found))
    lowered.save(folder / f"{AUTO}.pte")
    for backend in arguments.backends:
        delegatekit.lower(program, backends=[backend]).save(folder / f"{backend}.pte")
    delegatekit.lower(program, backends=[]).save(folder / f"{ALONE}.pte")
    (tuned,) = found.programs.values()
    return {"chosen": tuned.chosen.name, "delegates": sum(len(item.delegates) for item in lowered.methods.values())}


def _time(name: str, folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds of each file."""
    import executorch.kernels.quantized  # noqa: F401
    from executorch.extension.pybindings import _C

    import delegatekit_executorch.host  # noqa: F401

    cpu = arguments.clock == "CPU"
    if cpu:
        _C._unsafe_reset_threadpool(1)
        torch.set_num_threads(1)
    clock = time.process_time if cpu else time.perf_counter
    inputs = tuple(torch.load(folder / "inputs.pt"))
    files = {path.stem: path for path in sorted(folder.glob("*.pte"))}
    digests = {stem: hashlib.sha256(path.read_bytes()).hexdigest() for stem, path in files.items()}
    calls: dict[str, Any] = {}
    least: dict[str, float] = {}
    for stem, path in files.items():
        program = _C._load_program(str(path))
        method = program.load_method("forward")
        calls[stem] = lambda method=method, keep=program: method(inputs, clone_outputs=False)
        least[stem] = _seconds(calls[stem], clock)
        if least[stem] < _LONG:
            least[stem] = min(_seconds(calls[stem], clock) for _ in range(3))
    for _ in range(arguments.rounds):
        for stem, call in calls.items():
            if least[stem] <= _FAR * min(least.values()):
                least[stem] = min(least[stem], *(_seconds(call, clock) for _ in range(3)))
    for stem in files:
        if stem != AUTO and digests[stem] == digests[AUTO]:
            least[stem] = least[AUTO] = min(least[stem], least[AUTO])
    return least


def _seconds(call: Any, clock: Any) -> float:
    start = clock()
    call()
    return float(clock() - start)


_STEPS: Final = {"build": _build, "time": _time}


def _ratio(figures: Mapping[str, Any]) -> float:
    """The time of auto over the best of the others."""
    return float(figures[AUTO] / min((figures[key] for key in figures if key not in _NO_TIMES), default=math.nan))


_NO_TIMES: Final = (AUTO, "chosen", "delegates")


def table(models: Mapping[str, Mapping[str, Any]], backends: Sequence[str]) -> str:
    """Milliseconds of all, what was chosen, and the ratio of it to the best of the others."""
    others = [*backends, ALONE]
    header = ["model", *(f"{name}, ms" for name in (AUTO, *others)), "auto chose", "delegates", "auto / best other"]
    rows = [
        [
            name,
            *(f"{1e3 * figures[key]:.3f}" for key in (AUTO, *others)),
            str(figures["chosen"]),
            str(figures["delegates"]),
            f"{_ratio(figures):.2f}",
        ]
        for name, figures in models.items()
    ]
    return markdown_table(header, rows)


if __name__ == "__main__":
    main()
