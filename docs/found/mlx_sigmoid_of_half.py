"""The sigmoid of float16 below -11 is 0."""

from __future__ import annotations

import torch
from tools import mlx

PRODUCT = "MLX on processors"
PACKAGE = "mlx"
VERSION = "0.32.4"
AVOIDED = ("plugins/mlx/src/delegatekit_mlx/operators/common.py: _sigmoid",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([-11.5, -14.0], dtype=torch.float16)
    found, expected = mlx().sigmoid(mlx().array(x.numpy())).tolist(), torch.sigmoid(x).tolist()
    return f"{found}, should be {expected}" if 0 in found else None
