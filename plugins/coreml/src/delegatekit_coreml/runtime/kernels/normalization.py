"""Normalizations."""

from __future__ import annotations

from typing import Final

import torch
from torch.nn import functional

from ..kernel import Ints, Kernel, Tensor, kernel


def _layer_norm(
    x: Tensor,
    axes: Ints | None = None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-5,
) -> Tensor:
    rank = x.dim()
    chosen = sorted(axis % rank for axis in (range(rank) if axes is None else axes))
    if chosen == list(range(rank - len(chosen), rank)):
        return functional.layer_norm(x, x.shape[rank - len(chosen) :], gamma, beta, epsilon)
    variance, mean = torch.var_mean(x, chosen, correction=0, keepdim=True)
    result = (x - mean) * torch.rsqrt(variance + epsilon)
    sizes = [x.shape[axis] if axis in chosen else 1 for axis in range(rank)]
    if gamma is not None:
        result = result * gamma.reshape(sizes)
    return result if beta is None else result + beta.reshape(sizes)


def _batch_norm(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-5,
) -> Tensor:
    return functional.batch_norm(x, mean, variance, gamma, beta, eps=epsilon)


def _instance_norm(x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, epsilon: float = 1e-5) -> Tensor:
    return functional.instance_norm(x, weight=gamma, bias=beta, eps=epsilon)


KERNELS: Final[dict[str, Kernel]] = {
    "layer_norm": kernel(_layer_norm),
    "batch_norm": kernel(_batch_norm),
    "instance_norm": kernel(_instance_norm),
}
