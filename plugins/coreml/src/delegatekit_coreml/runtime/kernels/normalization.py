"""Normalizations."""

from __future__ import annotations

from typing import Final

from torch.nn import functional

from ..kernel import Ints, Kernel, Tensor, kernel


def _layer_norm(
    x: Tensor,
    axes: Ints,
    epsilon: float,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
) -> Tensor:
    rank = x.dim()
    chosen = sorted(axis % rank for axis in axes)
    last = tuple(range(rank - len(chosen), rank))
    moved = x.movedim(chosen, last)
    result = functional.layer_norm(moved, [moved.shape[axis] for axis in last], gamma, beta, epsilon)
    return result.movedim(last, chosen)


def _batch_norm(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    epsilon: float,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
) -> Tensor:
    return functional.batch_norm(x, mean, variance, gamma, beta, eps=epsilon)


def _instance_norm(x: Tensor, epsilon: float, gamma: Tensor | None = None, beta: Tensor | None = None) -> Tensor:
    return functional.instance_norm(x, weight=gamma, bias=beta, eps=epsilon)


KERNELS: Final[dict[str, Kernel]] = {
    "layer_norm": kernel(_layer_norm),
    "batch_norm": kernel(_batch_norm),
    "instance_norm": kernel(_instance_norm),
}
