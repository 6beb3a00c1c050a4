"""Reductions of windows with gaps read other elements, and may write beyond the result."""

from __future__ import annotations

import torch
from tools import mlx

PRODUCT = "MLX on processors"
PACKAGE = "mlx"
VERSION = "0.32.4"
AVOIDED = (
    "plugins/mlx/src/delegatekit_mlx/operators/pooling.py: _windows",
    "plugins/mlx/src/delegatekit_mlx/runtime/functions.py: _as_strided",
)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.arange(15.0).reshape(3, 5)
    windows = mlx().as_strided(mlx().array(x.numpy()), (3, 3, 2), (5, 1, 2))
    found = mlx().min(windows, axis=2).tolist()
    return None if found == x[:, :3].tolist() else f"{found}, should be {x[:, :3].tolist()}"
