"""Overhead of profiling: calls of a method whose instructions are measured, beside calls without measurements.

    python benchmarks/profiling.py                                  MobileNetV2 on XNNPACK
    python benchmarks/profiling.py --models minilm --backend vulkan

The two kinds of calls, and those that look into delegates, take turns in one process; CPU seconds, medians.
"""

from __future__ import annotations

import argparse
import math
import os
from functools import partial

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

import delegatekit
from delegatekit_conformance.models import MODELS, build_model
from delegatekit_tools.profile import Times, call_times
from delegatekit_tools.profile.recording import recorded_call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=["mobilenet-v2"])
    parser.add_argument("--backend", default="xnnpack")
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':<20}{'whole call':>14}{'by instruction':>24}{'inside delegates':>24}")
    for name in arguments.models:
        case = build_model(name)
        program = delegatekit.lower(case.module, case.inputs, backends=[arguments.backend])
        method = delegatekit.load(program.buffer)["forward"]
        calls = (
            partial(method.run, case.inputs),
            partial(recorded_call, method, case.inputs, len(method.instructions)),
            partial(method.record_operators, case.inputs),
        )
        found = call_times(calls, runs=arguments.rounds, warm_up=3, seconds=math.inf)
        whole, measured, inside = map(_seconds, found)
        print(f"{name:<20}{1e3 * whole:>11.3f} ms{_beside(measured, whole):>24}{_beside(inside, whole):>24}")


def _seconds(times: Times) -> float:
    """Median CPU seconds, which are measured here."""
    return times.median_cpu or 0.0


def _beside(seconds: float, whole: float) -> str:
    return f"{1e3 * seconds:.3f} ms, {100 * (seconds / whole - 1):+.1f} %"


if __name__ == "__main__":
    main()
