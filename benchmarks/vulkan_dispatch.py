"""Cost of a dispatch on this machine's Vulkan device, and our share of it.

    python benchmarks/vulkan_dispatch.py
    LP_NUM_THREADS=0 python benchmarks/vulkan_dispatch.py     Mesa's lavapipe without threads of its own

Chains of small operators, each on the result of the one before, of several lengths. For each length: the CPU time of
all threads and the wall time of a call through the engine, of the runtime's `execute` alone, and of submitting the
recorded commands and waiting for them, which is the driver's. A line is fitted over the lengths: its slope is what a
dispatch costs; the rest of the shortest chain is what a call costs. The least of many calls counts, the three of
them in turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

LENGTHS = (1, 51, 101, 201)
ELEMENTS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    found = {length: measure(length, arguments.rounds) for length in LENGTHS}
    print("| microseconds | a call, CPU | a dispatch, CPU | a call, wall | a dispatch, wall |")
    print("|---|---|---|---|---|")
    lines: dict[str, list[float]] = {}
    for what in ("engine", "runtime", "driver"):
        lines[what] = [
            number for clock in (0, 1) for number in fitted(LENGTHS, [found[length][what][clock] for length in LENGTHS])
        ]
    lines["ours: runtime - driver"] = [a - b for a, b in zip(lines["runtime"], lines["driver"], strict=True)]
    lines["ours: engine - runtime"] = [a - b for a, b in zip(lines["engine"], lines["runtime"], strict=True)]
    for what, numbers in lines.items():
        print(f"| {what} | " + " | ".join(f"{number * 1e6:.1f}" for number in numbers) + " |")


def measure(length: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Layer -> the least CPU and wall seconds of a call of a chain of this many operators."""
    import torch

    import delegatekit
    from delegatekit_vulkan.runtime import VulkanRuntime

    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for index in range(length):
                x = x * 0.5 if index % 2 else x + 1.0
            return x

    torch.set_num_threads(1)
    x, y = torch.ones(ELEMENTS), torch.empty(ELEMENTS)
    runtime, handles = VulkanRuntime(), list[Any]()
    init = VulkanRuntime.init

    def made(self: VulkanRuntime, payload: Any) -> Any:
        handles.append(init(self, payload))
        return handles[-1]

    VulkanRuntime.init = made  # type: ignore[method-assign]
    try:
        program = delegatekit.lower(Chain(), (x,), backends=["vulkan"])
        method = delegatekit.load(program.buffer)["forward"]
        method(x)
    finally:
        VulkanRuntime.init = init  # type: ignore[method-assign]
    (handle,) = handles
    ((recording, _),) = handle.recordings.values()
    who: dict[str, Callable[[], object]] = {
        "engine": lambda: method(x),
        "runtime": lambda: runtime.execute(handle, [x], [y]),
        "driver": recording.run,
    }
    least = dict.fromkeys(who, (float("inf"), float("inf")))
    for _ in range(rounds):
        for name, call in who.items():
            cpu, wall = time.process_time(), time.perf_counter()
            call()
            taken = time.process_time() - cpu, time.perf_counter() - wall
            least[name] = (min(least[name][0], taken[0]), min(least[name][1], taken[1]))
    return least


def fitted(at: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """The first of the values without its own dispatches, and the slope of the least-squares line."""
    middle, mean = sum(at) / len(at), sum(values) / len(values)
    slope = sum((x - middle) * (y - mean) for x, y in zip(at, values, strict=True)) / sum((x - middle) ** 2 for x in at)
    return values[0] - slope * at[0], slope


if __name__ == "__main__":
    main()
