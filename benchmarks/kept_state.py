"""CPU time of a call that writes one row into caches which a delegate keeps, beside a copy of the caches.

python benchmarks/kept_state.py openvino
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

import delegatekit

_LENGTHS = (256, 1024, 4096, 8192)
_REPEATS = 25


class Caches(nn.Module):
    """Two caches (1, 8, length, 64) of float32."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.keys, self.values = (nn.Buffer(torch.zeros(1, 8, length, 64)) for _ in range(2))

    def forward(self, row: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Write a row (1, 8, 1, 64) into both, and read one (1, 8, 1, 64) of each."""
        self.keys.index_copy_(2, at, row)
        self.values.index_copy_(2, at, row)
        return self.keys[:, :, :1] + self.values[:, :, :1]


def _milliseconds(call: Callable[[], object]) -> float:
    """CPU milliseconds of the fastest call."""
    found = []
    for _ in range(_REPEATS):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found) * 1e3


def _measured(backend: str, length: int) -> str:
    """A row of the table."""
    model = Caches(length)
    row, at = torch.randn(1, 8, 1, 64), torch.tensor([3])
    program = delegatekit.lower(model, (row, at), backends=[backend])
    kept = [node.name for one in program.methods["forward"].delegates for node in one.partition.buffers]
    if sorted(kept) != ["b_keys", "b_values"]:
        raise SystemExit(f"delegates of {backend} keep {kept}, and not both caches of {length} rows")
    data = program.buffer
    method = delegatekit.load(data)["forward"]
    source = torch.stack((model.keys, model.values))
    target = torch.empty_like(source)
    called, copied = _milliseconds(lambda: method(row, at)), _milliseconds(lambda: target.copy_(source))
    return f"| {source.nbytes >> 20} MiB | {called:.2f} ms | {copied:.2f} ms | {called / copied:.1f} |"


def main() -> None:
    """Print a row for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", help="a backend whose delegates keep state")
    backend = parser.parse_args().backend
    torch.set_num_threads(1)
    print("| caches | a call | a copy | ratio |\n|---|---|---|---|")
    for length in _LENGTHS:
        print(_measured(backend, length))


if __name__ == "__main__":
    main()
