"""Lowers a stack of many layers whose weights are converted at use, and prints the memory that this takes, in bytes.

`many_layers.py BACKEND LAYERS SIZE FILE`: the peak over what is in use before; weights are not counted.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

import delegatekit
from delegatekit_toolkit import later

#: For XNNPACK each layer is a delegate, because of a function that it does not have; for the others all are one.
SETTINGS: dict[str, dict[str, Any]] = {
    "xnnpack": {"scheme": "int8-dynamic-int4"},
    "vulkan": {"scheme": "int4-weight-only"},
    "coreml": {"scheme": "int4-weight-only", "options": {"target": "ios18"}},
}


class Layer(torch.nn.Module):
    """A product with a matrix that is stored as bfloat16, and a function."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size, size, dtype=torch.bfloat16) * size**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tan(torch.nn.functional.linear(x, self.weight.float()))


def in_use() -> int:
    """Bytes of memory of this process that no file backs."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def lower(backend: str, model: torch.nn.Module, size: int, file: str) -> None:
    """Lower a model of rows of a size with 4-bit weights, which are never in memory together."""
    example = (torch.randn(1, size),)
    given = {"backend": backend, "progress": False, "deferred": True, **SETTINGS[backend]}
    options = {backend: SETTINGS[backend].get("options", {})}
    quantized = delegatekit.quantize(model, [example], **given)
    delegatekit.lower(quantized, example, backends=[backend], options=options, external=True).save(file)


def main(backend: str, layers: int, size: int, file: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    later._ROOM = 0  # type: ignore[misc]
    lower(backend, torch.nn.Linear(32, 1).eval(), 32, file)  # loads what it needs
    model = torch.nn.Sequential(*(Layer(size) for _ in range(layers))).eval()
    before, found, ended = in_use(), [0], threading.Event()

    def watch() -> None:
        while not ended.is_set():
            found[0] = max(found[0], in_use())
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    lower(backend, model, size, file)
    ended.set()
    thread.join()
    print(found[0] - before)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
