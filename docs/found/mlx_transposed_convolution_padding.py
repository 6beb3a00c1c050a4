"""A transposed convolution whose padding reaches beyond its window has other sizes."""

from __future__ import annotations

import torch
from tools import mlx

PRODUCT = "MLX on processors"
PACKAGE = "mlx"
VERSION = "0.32.4"
AVOIDED = ("plugins/mlx/src/delegatekit_mlx/operators/convolution.py: _cut",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x, weight = torch.ones(1, 6, 1), torch.ones(1, 2, 1)
    found = mlx().conv_transpose1d(mlx().array(x.numpy()), mlx().array(weight.numpy()), stride=3, padding=3)
    expected = torch.nn.functional.conv_transpose1d(x.mT, weight.mT, stride=3, padding=3).shape[2]
    return None if found.shape[1] == expected else f"{found.shape[1]} elements, should be {expected}"
