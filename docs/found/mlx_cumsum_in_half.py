"""Running sums of float16 stop at 2048."""

from __future__ import annotations

from tools import mlx

PRODUCT = "MLX on processors"
PACKAGE = "mlx"
VERSION = "0.32.4"
AVOIDED = ("plugins/mlx/src/delegatekit_mlx/operators/common.py: in_float32",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    found = mlx().cumsum(mlx().ones((3000,), dtype=mlx().float16))[-1].item()
    return None if found == 3000 else f"{found}, should be 3000"
