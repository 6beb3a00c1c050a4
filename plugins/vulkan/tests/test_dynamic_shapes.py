"""Sizes that change from call to call: one delegate, called at sizes that grow and shrink."""

from __future__ import annotations

import math

import pytest
import torch
from torch.export import Dim
from torch.nn import functional as F

from delegatekit_conformance.testkit import compare, lower

pytestmark = pytest.mark.needs_device

#: Of a configuration: keys that several queries share; tokens outside the small vocabulary.
MORE = {"Llama": {"intermediate_size": 48, "num_key_value_heads": 2}, "GPT2": {"bos_token_id": 0, "eos_token_id": 0}}
B, T = Dim("b", min=1, max=4), Dim("t", min=1, max=12)
#: The example first, then the largest, the smallest, one axis at a time, and again.
SIZES = [(2, 5), (4, 12), (1, 1), (3, 12), (4, 2), (1, 7), (4, 12), (1, 1)]
CALLS = [(torch.randn(b, t, 16, generator=torch.Generator().manual_seed(b * t)),) for b, t in SIZES]
BOTH = (({0: B, 1: T},),)
WEIGHT = torch.randn(16)


def merged(x):
    """(batch, heads, length, width) as (batch, length, features)."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def causal(x):
    """True for positions that come before or at a position: (length, length)."""
    positions = torch.arange(x.shape[1])
    return positions[:, None] >= positions


def repeated_heads(x, times):
    """(batch, heads, length, width): each head `times` times, as in models whose queries share keys."""
    batch, heads, length, width = x.shape
    return x[:, :, None].expand(batch, heads, times, length, width).reshape(batch, heads * times, length, width)


#: One input (b, t, 16), of which b and t change.
OPERATORS = {
    "functions": lambda x: x.exp().tanh() + x.sigmoid() * F.gelu(x),
    "functions of several calls": lambda x: F.mish(x) + F.softplus(x) + F.elu(x) + torch.maximum(x, -2 * x),
    "numbers and constants": lambda x: (x + 1) * WEIGHT / 3,
    "comparisons": lambda x: torch.where(x > 0, x, x * 0.1),
    "logic of many axes": lambda x: ~((x * 2).view(x.shape[0], x.shape[1], 2, 2, 4) > 0),
    "masks": lambda x: x.masked_fill(torch.arange(16) > 9, -1.0),
    "broadcast over the batch": lambda x: x * x[:1] + x[:, :1],
    "products": lambda x: x.unsqueeze(2) * x.unsqueeze(1),
    "views that join and cut": lambda x: (x * 2).reshape(x.shape[0], x.shape[1] * 16) + 1,
    "heads": lambda x: (x * 2).view(x.shape[0], x.shape[1], 4, 4).transpose(1, 2) + 1,
    "merged heads": lambda x: merged((x * 2).view(x.shape[0], x.shape[1], 4, 4).transpose(1, 2) + 1) * 2,
    "permutations": lambda x: (x * 2).permute(2, 0, 1) + 1,
    "slices": lambda x: (x * 2)[:, -1:] + (x * 2)[..., 3:4],
    "joins": lambda x: torch.cat([x * 2, x], 1),
    "joins of features": lambda x: torch.cat([x * 2, x + 1], 2),
    "selections": lambda x: (x * 2)[:, 0] + (x * 2)[:, -1],
    "indices": lambda x: (x * 2)[:, :, [3, 0, 15]] + 1,
    "slices of a table": lambda x: x + torch.arange(12.0)[: x.shape[1], None],
    "counting": lambda x: x + torch.arange(x.shape[1]).unsqueeze(1),
    "counting from a size": lambda x: x + torch.arange(x.shape[0], x.shape[0] + x.shape[1]).unsqueeze(1),
    "sizes added": lambda x: x + (torch.arange(16) + x.shape[1]) * 2,
    "sizes as operands": lambda x: (x - x.shape[0]) * x.shape[1] / (x.shape[1] + 1) + (3 * x.shape[0] - x),
    "sizes compared": lambda x: torch.where(torch.arange(16) < x.shape[1], x, -x),
    "sizes beside a number": lambda x: x * (torch.tensor(0.5) * x.shape[1]),
    "causal masks": lambda x: x @ x.mT + torch.where(causal(x), 0.0, -10.0),
    "repetitions": lambda x: torch.cat([x[:, :1].expand(-1, x.shape[1], -1), x], 2) * 2,
    "repetitions of rows": lambda x: torch.cat([WEIGHT.expand(x.shape[0], x.shape[1], 16), x], 2) * 2,
    "repetitions of integers": lambda x: x * torch.cat([x[:, :, :1].int().expand(-1, -1, 16), x.int()], 1)[:, :1],
    "repetitions of heads": lambda x: repeated_heads((x * 2).view(*x.shape[:2], 2, 8).transpose(1, 2), 3) * 2,
    "running sums": lambda x: (x * 2).cumsum(1) + x.cumsum(-1) + x.cumsum(0),
    "places in a sequence": lambda x: x + (x[..., 0] > 0).cumsum(1).unsqueeze(-1),
    "indices of several axes": lambda x: x[(x[:, :1, 0] > 0).int() - 1, torch.arange(x.shape[1])] + x,
    "filled": lambda x: x + torch.full((x.shape[1], 1), 2.5) - torch.zeros(x.shape[0], 1, 16, dtype=torch.int32),
    "filled with a size": lambda x: x - torch.full((x.shape[0], 1, 1), x.shape[1]) + torch.full((16,), x.shape[0]),
    "masks for each example": lambda x: (x @ x.mT).masked_fill(causal(x).expand(x.shape[0], -1, -1), -1.0),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_run_at_every_size(name):
    lowered = lower(OPERATORS[name], *CALLS[0], backend="vulkan", dynamic_shapes=BOTH)
    compare(lowered, *CALLS, tolerance=2e-6)


def test_half_precision_runs_at_every_size():
    lowered = lower(OPERATORS["functions"], *CALLS[0], backend="vulkan", options={"fp16": True}, dynamic_shapes=BOTH)
    # Inputs are rounded to 11 bits, and so is every result.
    compare(lowered, *CALLS, tolerance=2e-2)


@pytest.mark.parametrize("batches", [1, 3])
def test_positions_are_looked_up_at_every_size(batches):
    table = torch.nn.Embedding(20, 8)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = table

        def forward(self, tokens):
            return self.table(tokens) * math.sqrt(8)

    length = Dim("t", min=1, max=12)
    calls = [(torch.randint(0, 20, (1 + size % batches, size)),) for size in (5, 12, 1, 7)]
    sizes = {1: length} if batches == 1 else {0: B, 1: length}
    lowered = lower(Model(), *calls[0], backend="vulkan", dynamic_shapes=(sizes,))
    compare(lowered, *calls, tolerance=1e-6)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["Llama", pytest.param("GPT2", marks=pytest.mark.slow), "Bert"])
def test_transformers_of_any_length_and_batch_are_one_delegate(name, attention):
    """Masks, positions and their embeddings depend on sizes that the tokens alone have."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = getattr(transformers, f"{name}Config")(
        **sizes, max_position_embeddings=16, attn_implementation=attention, **MORE.get(name, {})
    )
    model = getattr(transformers, f"{name}Model")(config).eval()

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens):
            return self.model(tokens, use_cache=False)[0]

    calls = [(torch.randint(0, 40, size),) for size in SIZES]
    lowered = lower(Network(), *calls[0], backend="vulkan", dynamic_shapes=({0: B, 1: T},))
    compare(lowered, *calls, tolerance=1e-5)
