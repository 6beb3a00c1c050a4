"""An input in channels-last order, for a method that was exported with a contiguous one, is read in the wrong order.

Neither the binding nor the runtime compares the orders of dimensions.
"""

from __future__ import annotations

import torch
from tools import differs, lowered, run

PRODUCT = "ExecuTorch's runtime, exporter and tools"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/engine/memory.py: Memory",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.arange(12.0).reshape(1, 2, 2, 3)
    file = lowered(lambda x: x + 1, [x])
    return differs(run(file, x.to(memory_format=torch.channels_last)), x + 1)
