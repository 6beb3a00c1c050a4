"""Causal attention over a cache as an operator that programs call, and what it computes."""

from __future__ import annotations

import torch


def attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    """Attention of new tokens over a cache: each sees the tokens before it and itself.

    `query` is (1, n, heads, size); `keys` and `values` are (places, groups, size), of which each group serves `heads /
    groups` heads. Place p has token p: the n new ones begin at `start`, int64 (1,). `scale` is 1 / sqrt(size) by
    default. Returns (1, n, heads, size). Only the places before `start + n` are read.
    """
    chosen = query.shape[-1] ** -0.5 if scale is None else scale
    found: torch.Tensor = torch.ops.delegatekit_llama.attention(query, keys, values, start, chosen)
    return found


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int, scale: float | None
) -> torch.Tensor:
    """What `attention` computes, `start` being a number."""
    new = query.shape[1]
    end = start + new
    seen = None if new == 1 else torch.ones(new, end, dtype=torch.bool).tril(start)
    query, keys, values = (item.movedim(-2, -3) for item in (query, keys[None, :end], values[None, :end]))
    found = torch.nn.functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=seen, scale=scale, enable_gqa=True
    )
    return found.transpose(1, 2).contiguous()


@torch.library.custom_op("delegatekit_llama::attention", mutates_args=())
def _attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: torch.Tensor, scale: float
) -> torch.Tensor:
    return attend(query, keys, values, int(start), scale)


@_attention.register_fake
def _(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(query, memory_format=torch.contiguous_format)
