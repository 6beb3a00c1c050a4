"""Compile time: in this process, in a separate process, in parallel, and a second time from the cache.

    python benchmarks/compiling.py                              # EfficientNet-Lite0, int8, for an Ethos-U55
    python benchmarks/compiling.py --backend ethosu --model efficientnet-lite0

Two methods with the same network, whose weights differ: two partitions. CPU seconds are of this process and of those
that it started and that have ended; these and the wall time are from the exported program to the file. All
files must be the same.
"""

from __future__ import annotations

import argparse
import copy
import os
import resource
import tempfile
import time
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="ethosu", help="a backend with a scheme int8 and a hook compiler_version")
    parser.add_argument("--model", default="efficientnet-lite0", help="a name of delegatekit_conformance.models")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    programs = methods(arguments.model, arguments.backend)
    print("| compiled | CPU s | wall s |\n|---|---|---|", flush=True)
    files = set()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DELEGATEKIT_CACHE"] = folder
        for name, settings in (
            ("here", {"cache": False}),
            ("each in a process of its own", {"cache": False, "isolate": True}),
            ("two at a time", {"cache": False, "jobs": 2}),
            ("here, and kept", {}),
            ("taken from the cache", {}),
        ):
            start, wall = used(), time.perf_counter()
            files.add(lowered(programs, arguments.backend, settings))
            print(f"| {name} | {used() - start:.2f} | {time.perf_counter() - wall:.2f} |", flush=True)
    print(f"{'all files are the same' if len(files) == 1 else 'THE FILES DIFFER'}: {len(min(files)):,} bytes")


def methods(model: str, backend: str) -> dict[str, Any]:
    """The network, quantized, as two exported programs; the second has other weights."""
    import torch

    import delegatekit
    from delegatekit_conformance.models import build_model

    case = build_model(model)
    second = copy.deepcopy(case.module)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(1.01)
    found = {}
    for name, module in (("first", case.module), ("second", second)):
        quantized = delegatekit.quantize(module, [case.inputs], backend=backend, progress=False)
        found[name] = torch.export.export(quantized, case.inputs, strict=False)
    return found


def lowered(programs: dict[str, Any], backend: str, settings: dict[str, Any]) -> bytes:
    """The file."""
    import delegatekit

    program = delegatekit.lower(programs, backends=[backend], compiling=delegatekit.Compiling(**settings))
    return bytes(program.buffer)


def used() -> float:
    """CPU seconds of this process and of its children that have ended."""
    parts = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in parts)


if __name__ == "__main__":
    main()
