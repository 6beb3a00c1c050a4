"""The error function has two digits near 0."""

from __future__ import annotations

import torch
from tools import mlx

PRODUCT = "MLX on processors"
PACKAGE = "mlx"
VERSION = "0.32.4"
AVOIDED = ("plugins/mlx/src/delegatekit_mlx/operators/common.py: DIALECT",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([1e-5])
    found, expected = mlx().erf(mlx().array(x.numpy())).item(), torch.erf(x).item()
    return f"{found:.4g}, should be {expected:.4g}" if abs(found / expected - 1) > 1e-3 else None
