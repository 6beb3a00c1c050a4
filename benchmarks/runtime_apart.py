"""Cost of a delegate's call in a separate process, against the same call in this one.

    python benchmarks/runtime_apart.py

One delegate of the reference backend that adds two tensors. Wall time is that of the fastest call, CPU time that of the
fastest of several rounds, so that other work of the machine counts as little as possible.
"""

from __future__ import annotations

import time
from typing import Any, Final

import torch

import delegatekit

_ROUNDS: Final = 20
_CALLS: Final = 100
_SIZES: Final = (1, 1_000, 100_000, 1_000_000)


class _Add(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print("| elements of each tensor | us wall: here | apart | more | us CPU of this process: here | apart |")
    print("|---|---|---|---|---|---|")
    for size in _SIZES:
        inputs = (torch.randn(size), torch.randn(size))
        data = delegatekit.lower(_Add().eval(), inputs, backends=["reference"]).buffer
        here, apart = (delegatekit.load(data, isolate=isolate)["forward"] for isolate in (False, True))
        (wall, cpu), (wall_apart, cpu_apart) = (_cost(method, inputs, size) for method in (here, apart))
        print(f"| {size:,} | {wall:.0f} | {wall_apart:.0f} | {wall_apart - wall:.0f} | {cpu:.0f} | {cpu_apart:.0f} |")


def _cost(method: Any, inputs: Any, size: int) -> tuple[float, float]:
    """Microseconds of wall time and of this process' CPU time of a call."""
    calls = max(5, _CALLS // max(1, size // 10_000))
    walls, rounds = [], []
    for _ in range(_ROUNDS):
        cpu = time.process_time()
        for _ in range(calls):
            start = time.perf_counter()
            method.run(inputs)
            walls.append(time.perf_counter() - start)
        rounds.append((time.process_time() - cpu) / calls)
    return 1e6 * min(walls), 1e6 * min(rounds)


if __name__ == "__main__":
    main()
