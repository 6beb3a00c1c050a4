"""A file whose extended header is damaged is loaded, and computes with whatever memory it finds.

The header says where constants lie. With its four letters destroyed the runtime reads an older layout, in which they
begin at the start of the file.
"""

from __future__ import annotations

import torch
from tools import lowered, run

PRODUCT = "ExecuTorch's runtime, exporter and tools"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("core/src/delegatekit/pte/reader.py: _segments",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    weight = torch.nn.Parameter(torch.ones(4))
    model = torch.nn.Linear(4, 1, bias=False)
    model.weight = torch.nn.Parameter(weight[None])
    file, x = lowered(model, [torch.eye(4)]), torch.eye(4)
    found = run(file.replace(b"eh00", b"xxxx", 1), x).flatten().tolist()
    return None if found == [1.0] * 4 else f"{found}, should be refused (the weights are ones)"
