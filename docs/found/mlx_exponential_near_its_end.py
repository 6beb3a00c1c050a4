"""The exponential is infinite from about 88.1 on, float32's from 88.73."""

from __future__ import annotations

import torch
from tools import mlx

PRODUCT = "MLX on processors"
PACKAGE = "mlx"
VERSION = "0.32.4"
AVOIDED = ()


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([88.2, 88.5])
    found, expected = mlx().exp(mlx().array(x.numpy())).tolist(), torch.exp(x).tolist()
    return f"{found}, should be {expected}" if float("inf") in found else None
