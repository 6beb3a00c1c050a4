"""Reductions, softmax, running sums and sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from ..kernel import Ints, Kernel, Tensor, kernel


def _reduction(function: Callable[[Any, list[int], bool], Any]) -> Kernel:
    def run(x: Tensor, keep_dims: bool, axes: Ints | None = None) -> Tensor:
        chosen = [axis % x.dim() for axis in (range(x.dim()) if axes is None else axes)]
        result: Tensor = function(x, chosen, keep_dims).to(x.dtype)
        return result

    return kernel(run)


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def _position(function: Callable[..., Any]) -> Kernel:
    def run(x: Tensor, axis: int, keep_dims: bool, output_dtype: str | None = None) -> Tensor:
        result: Tensor = function(x, axis, keepdim=keep_dims).to(torch.int32)
        return result

    return kernel(run)


def _softmax(x: Tensor, axis: int) -> Tensor:
    return torch.softmax(x, axis)


def _cumulative(x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    if exclusive or reverse:
        raise ValueError("sums from the other end, or without the element itself, are not supported")
    return torch.cumsum(x, axis, dtype=x.dtype)


def _largest(
    x: Tensor,
    k: int,
    axis: int,
    ascending: bool,
    sort: bool | None = None,
    return_indices: bool | None = None,
    output_indices_dtype: str | None = None,
) -> tuple[Tensor, Tensor]:
    count = x.shape[axis] if k == -1 else k
    values, indices = torch.topk(x, count, axis, largest=not ascending, sorted=True)
    return values, indices.to(torch.int32)


def _order(x: Tensor, axis: int, ascending: bool) -> Tensor:
    return torch.argsort(x, dim=axis, descending=not ascending, stable=True).to(torch.int32)


KERNELS: Final[dict[str, Kernel]] = {
    "reduce_mean": _reduction(lambda x, axes, keep: x.mean(axes, keepdim=keep)),
    "reduce_sum": _reduction(lambda x, axes, keep: x.sum(axes, keepdim=keep)),
    "reduce_max": _reduction(lambda x, axes, keep: x.amax(axes, keepdim=keep)),
    "reduce_min": _reduction(lambda x, axes, keep: x.amin(axes, keepdim=keep)),
    "reduce_prod": _reduction(_product),
    "reduce_sum_square": _reduction(lambda x, axes, keep: x.square().sum(axes, keepdim=keep)),
    "reduce_l1_norm": _reduction(lambda x, axes, keep: x.abs().sum(axes, keepdim=keep)),
    "reduce_l2_norm": _reduction(lambda x, axes, keep: x.square().sum(axes, keepdim=keep).sqrt()),
    "reduce_log_sum": _reduction(lambda x, axes, keep: x.sum(axes, keepdim=keep).log()),
    "reduce_log_sum_exp": _reduction(lambda x, axes, keep: x.logsumexp(axes, keepdim=keep)),
    "reduce_argmax": _position(torch.argmax),
    "reduce_argmin": _position(torch.argmin),
    "softmax": kernel(_softmax),
    "cumsum": kernel(_cumulative),
    "topk": kernel(_largest),
    "argsort": kernel(_order),
}
