"""Picking by two tensors fixes a batch that changes at the example's size: the file is wrong for all others.

The handler of the operator asks for the numbers of the result's sizes, to which PyTorch answers with those of the
example, and from then on the whole program has them.
"""

from __future__ import annotations

import torch
from tools import mlx_nodes

PRODUCT = "ExecuTorch's MLX lowering"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ("plugins/executorch/src/delegatekit_executorch_backends/ir/sizes.py: sizes_kept",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    batch = torch.export.Dim("batch", min=1, max=8)
    inputs = torch.ones(3, 4), torch.arange(3)
    nodes = mlx_nodes(lambda x, places: x[places, places] * 2, inputs, ({0: batch}, {0: batch}))
    (reshape,) = [node for node in nodes if node["op_name"] == "ReshapeNode"]
    return f"the result has the shape {reshape['shape']}" if {"literal": 3} in reshape["shape"] else None
