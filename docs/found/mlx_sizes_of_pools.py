"""Pools fix sizes that change at the example's, the batch's, too: the file is wrong for all others.

The handler writes the sizes without asking whether they change, and the writer of the file then asks for their numbers.
"""

from __future__ import annotations

import torch
from tools import mlx_nodes

PRODUCT = "ExecuTorch's MLX lowering"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/executorch/src/delegatekit_executorch_backends/support.py: StockPartitioner._unfit",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    batch = torch.export.Dim("batch", min=2, max=8)
    nodes = mlx_nodes(lambda x: torch.nn.functional.max_pool2d(x, 2), [torch.ones(3, 2, 4, 4)], ({0: batch},))
    (reshape,) = [node for node in nodes if node["op_name"] == "ReshapeNode"]
    return f"pools images of the shape {reshape['shape'][:1]}" if reshape["shape"][0] == {"literal": 3} else None
