"""What measuring costs: calls of a method whose instructions are measured, beside calls of which nothing is.

    python benchmarks/profiling.py                                  MobileNetV2 on XNNPACK
    python benchmarks/profiling.py --models minilm --backend vulkan

The two kinds of calls, and those that look into delegates, take turns in one process; CPU seconds, medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

import delegatekit
from delegatekit.profiling.recording import recorded_call
from delegatekit_conformance.models import MODELS, build_model


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
        kinds = (method.run, partial(recorded_call, method), method.record_operators)
        whole, measured, inside = compare([partial(kind, case.inputs) for kind in kinds], arguments.rounds)
        print(f"{name:<20}{1e3 * whole:>11.3f} ms{_beside(measured, whole):>24}{_beside(inside, whole):>24}")


def compare(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Median CPU seconds of each, in turns."""
    taken: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 3):
        for call, seconds in zip(calls, taken, strict=True):
            start = time.process_time()
            call()
            if number >= 3:
                seconds.append(time.process_time() - start)
    return [statistics.median(seconds) for seconds in taken]


def _beside(seconds: float, whole: float) -> str:
    return f"{1e3 * seconds:.3f} ms, {100 * (seconds / whole - 1):+.1f} %"


if __name__ == "__main__":
    main()
