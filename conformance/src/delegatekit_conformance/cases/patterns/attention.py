"""Attention in its spellings, and its surroundings in transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..subjects import Built
from .register import pattern


@pattern("attention-written-out")
def attention_written_out() -> Built:
    """Four heads: products, scale, softmax, product."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inputs, self.output = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> Any:
            b, t, d = x.shape
            q, k, v = (part.view(b, t, 4, d // 4).transpose(1, 2) for part in self.inputs(x).split(d, -1))
            weights = (q @ k.transpose(-2, -1) / (d // 4) ** 0.5).softmax(-1)
            return self.output((weights @ v).transpose(1, 2).reshape(b, t, d))

    return Model(), [(torch.randn(2, 6, 16),)]


@pattern("attention-minus-infinity")
def attention_minus_infinity() -> Built:
    """A causal mask of minus infinities, written into the scores."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            scores = q @ k.transpose(-2, -1) * 0.5
            future = torch.ones(5, 5, dtype=torch.bool).triu(1)
            return scores.masked_fill(future, float("-inf")).softmax(-1) @ v

    return Model(), [tuple(torch.randn(1, 2, 5, 4) for _ in range(3))]


@pattern("attention-added-masks")
def attention_added_masks() -> Built:
    """Constant masks, added to scores: causal, with a bias of the distance, and of a large number for one place."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            future, places = torch.ones(5, 5).triu(1) > 0, torch.arange(5.0)
            distance = -(places[:, None] - places).abs() * 0.25
            masks = torch.zeros(5, 5), distance
            self.causal = nn.ParameterList(
                nn.Parameter(mask.masked_fill(future, float("-inf")), requires_grad=False) for mask in masks
            )
            self.hidden = nn.Buffer(torch.tensor([0.0, 0.0, 0.0, -1e4, 0.0]))

        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            scores = q @ k.transpose(-2, -1) * 0.5
            masked = *(mask + scores for mask in self.causal), scores + self.hidden
            return tuple(one.softmax(-1) @ v for one in masked)

    return Model(), [tuple(torch.randn(1, 2, 5, 4) for _ in range(3))]


@pattern("attention-padded")
def attention_padded() -> Built:
    """A mask that is computed from which tokens are padding, as models for texts do."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tokens: torch.Tensor) -> Any:
            scores = q @ k.transpose(-2, -1) * 0.5
            return (scores + (1.0 - tokens[:, None, None]) * -1e9).softmax(-1) @ v

    tokens = torch.tensor([[1.0, 1.0, 1.0, 1.0, 0.0]])
    return Model(), [(*(torch.randn(1, 2, 5, 4) for _ in range(3)), tokens)]


@pattern("sdpa")
def sdpa() -> Built:
    """Plain attention, queries and keys of different lengths."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v)

    return Model(), [(torch.randn(2, 2, 3, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8))]


@pattern("sdpa-causal")
def sdpa_causal() -> Built:
    """The causal mask as a flag, with a scale of its own."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2)

    return Model(), [tuple(torch.randn(1, 2, 6, 8) for _ in range(3))]


@pattern("sdpa-additive-mask")
def sdpa_additive_mask() -> Built:
    """A mask of numbers, some of them minus infinity, for each head."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    mask = torch.randn(1, 2, 5, 5)
    mask[:, :, :, 4] = float("-inf")
    return Model(), [(*(torch.randn(1, 2, 5, 8) for _ in range(3)), mask)]


@pattern("sdpa-bool-mask")
def sdpa_bool_mask() -> Built:
    """True means visible: the opposite of masked_fill."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    mask = torch.tensor([True, True, False, True, False]).expand(1, 1, 5, 5).contiguous()
    return Model(), [(*(torch.randn(1, 2, 5, 8) for _ in range(3)), mask)]


@pattern("mask-of-large-numbers")
def mask_of_large_numbers() -> Built:
    """Numbers that half precision does not have, beside ordinary ones, times a mask: 0 hides nothing."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            least = torch.finfo(torch.float32).min
            self.mask = nn.Buffer(torch.tensor([[0.0, -1e9, 1.0, least], [0.0, 2.0, 1e9, 1.0]]))

        def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> Any:
            return (x + hidden * self.mask[0]).softmax(-1), x + hidden * self.mask[1]

    return Model(), [(torch.randn(3, 4), torch.zeros(3, 4))]


@pattern("sdpa-grouped-queries")
def sdpa_grouped_queries() -> Built:
    """Four heads of queries share two heads of keys and values."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    return Model(), [(torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8))]


@pattern("transformer-layer")
def transformer_layer() -> Built:
    """nn.TransformerEncoderLayer, the norm first."""
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True), [(torch.randn(2, 5, 16),)]


@pattern("multihead-attention")
def multihead_attention() -> Built:
    """nn.MultiheadAttention with the weights returned."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return self.attention(x, y, y)

    return Model(), [(torch.randn(2, 3, 16), torch.randn(2, 5, 16))]


@pattern("rotary-embedding")
def rotary_embedding() -> Built:
    """Llama's rotation of halves, and the one of neighbors."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            angles = torch.arange(6.0)[:, None] / 100 ** (torch.arange(4) / 4)
            self.cos = nn.Buffer(angles.cos())
            self.sin = nn.Buffer(angles.sin())

        def forward(self, q: torch.Tensor) -> Any:
            first, second = q[..., :4], q[..., 4:]
            halves = torch.cat([first * self.cos - second * self.sin, second * self.cos + first * self.sin], -1)
            even, odd = q[..., ::2], q[..., 1::2]
            pairs = torch.stack([even * self.cos - odd * self.sin, odd * self.cos + even * self.sin], -1)
            return halves, pairs.flatten(-2)

    return Model(), [(torch.randn(1, 2, 6, 8),)]


@pattern("embedding-and-position")
def embedding_and_position() -> Built:
    """Token and position embeddings, a norm."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places, self.norm = nn.Embedding(20, 8), nn.Embedding(10, 8), nn.LayerNorm(8)

        def forward(self, ids: torch.Tensor) -> Any:
            return self.norm(self.tokens(ids) + self.places(torch.arange(ids.shape[1])))

    return Model(), [(torch.randint(0, 20, (2, 7)),)]


@pattern("tied-embedding")
def tied_embedding() -> Built:
    """One matrix looks tokens up and scores them."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.middle = nn.Embedding(20, 8), nn.Linear(8, 8)

        def forward(self, ids: torch.Tensor) -> Any:
            return nn.functional.linear(torch.tanh(self.middle(self.tokens(ids))), self.tokens.weight)

    return Model(), [(torch.randint(0, 20, (2, 7)),)]
