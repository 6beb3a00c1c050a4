"""A buffer that the method updates begins with anything but its own value: the exporter leaves the value out.

Without a pass that one has to know of, no initial value gets into the file.
"""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's runtime, exporter and tools"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/emit/state.py: State",)


def main() -> str | None:
    """The fault, as it is seen; None if it is mended."""

    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.full((1,), 5.0))

        def forward(self, x):
            self.count.add_(1)
            return x + self.count

    x = torch.zeros(1)
    return differs(stock(Counts(), x), torch.full((1,), 6.0))
