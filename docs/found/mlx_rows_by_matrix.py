"""A matrix picked by a matrix of places, x[places], takes single elements: rows should be taken.

The operator is chosen by the number of dimensions alone. MLX refuses the call, or computes something else where the
sizes fit.
"""

from __future__ import annotations

import torch
from tools import mlx_nodes

PRODUCT = "ExecuTorch's MLX lowering"
PACKAGE = "executorch"
VERSION = "1.5.1"
AVOIDED = ()


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    nodes = mlx_nodes(lambda x, places: x[places], [torch.ones(5, 4), torch.ones(2, 4, dtype=torch.int64)])
    found = [node["op_name"] for node in nodes]
    return f"{found}, a result of (2, 4), should be (2, 4, 4)" if "TakeAlongAxisNode" in found else None
