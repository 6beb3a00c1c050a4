"""A buffer that the method updates does not begin with its own value: the exporter leaves the value out.

Without an extra pass, which users must know of, no initial value gets into the file.
"""

from __future__ import annotations

import torch
from tools import differs, stock

PRODUCT = "ExecuTorch's runtime, exporter and tools"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/emit/state.py: State",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""

    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.full((1,), 5.0))

        def forward(self, x):
            self.count.add_(1)
            return x + self.count

    x = torch.zeros(1)
    return differs(stock(Counts(), x), torch.full((1,), 6.0))
