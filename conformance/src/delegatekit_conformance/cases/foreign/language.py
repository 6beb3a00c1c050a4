"""Modules of language models as stock's own exporters quantize and write them: weights of 4 bits, positions.

They use what the wheel executorch brings: torchao, and operators of its own. A builder uses nothing else: its text is
the snippet that a report shows.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn

from ..subjects import Builder, Built


def weights_in_groups() -> Built:
    """A linear layer with weights of 4 bits, a scale for each group of 32, and a bias."""
    import torchao.quantization  # noqa: F401 - defines the operators

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.randint(-8, 8, (40, 64), dtype=torch.int8))
            self.scales = nn.Buffer(torch.rand(40, 2) / 8 + 1 / 16)
            self.zeros = nn.Buffer(torch.zeros(40, 2, dtype=torch.int8))
            self.bias = nn.Buffer(torch.randn(40))

        def forward(self, x: torch.Tensor) -> Any:
            stored = (self.weight, [1, 32], self.scales.float(), self.zeros, torch.int8, -8, 7)
            weight = torch.ops.torchao.dequantize_affine(*stored, output_dtype=torch.float32)
            return nn.functional.linear(x, weight.to(x.dtype), self.bias)

    return Model(), [(torch.randn(2, 3, 64),)]


def weights_in_one_group() -> Built:
    """A linear layer of one row with weights of 4 bits, a scale for each row of weights."""
    import torchao.quantization  # noqa: F401 - defines the operators

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.randint(-8, 8, (24, 32), dtype=torch.int8))
            self.scales = nn.Buffer(torch.rand(24, 1) / 8 + 1 / 16)
            self.zeros = nn.Buffer(torch.zeros(24, 1, dtype=torch.int8))

        def forward(self, x: torch.Tensor) -> Any:
            stored = (self.weight, [1, 32], self.scales.float(), self.zeros, torch.int8, -8, 7)
            weight = torch.ops.torchao.dequantize_affine(*stored, output_dtype=torch.float32)
            return nn.functional.linear(x, weight.to(x.dtype))

    return Model(), [(torch.randn(1, 32),)]


def weights_in_groups_of_rounded_rows() -> Built:
    """A linear layer with weights of 4 bits in groups, of rows that are rounded to bytes by their own range."""
    import torchao.quantization  # noqa: F401 - defines the operators

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.randint(-8, 8, (24, 64), dtype=torch.int8))
            self.scales = nn.Buffer(torch.rand(24, 2) / 8 + 1 / 16)
            self.zeros = nn.Buffer(torch.zeros(24, 2, dtype=torch.int8))

        def forward(self, x: torch.Tensor) -> Any:
            ao, given = torch.ops.torchao, x.float()
            step, zero = ao.choose_qparams_affine(
                given, "ASYMMETRIC", [1, 64], torch.int8, -128, 127, None, torch.float32, torch.int8
            )
            bytes_of = ao.quantize_affine(given, [1, 64], step, zero, torch.int8, -128, 127)
            rounded = ao.dequantize_affine(bytes_of, [1, 64], step, zero, torch.int8, -128, 127)
            stored = (self.weight, [1, 32], self.scales.float(), self.zeros, torch.int8, -8, 7)
            weight = ao.dequantize_affine(*stored, output_dtype=torch.float32)
            return nn.functional.linear(rounded.to(x.dtype), weight.to(x.dtype))

    return Model(), [(torch.randn(5, 64),)]


def bytes_by_rows() -> Built:
    """A linear layer with weights of 8 bits, a scale for each row."""
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.randint(-127, 128, (12, 16), dtype=torch.int8))
            self.scales = nn.Buffer(torch.rand(12) / 64 + 1 / 128)
            self.zeros = nn.Buffer(torch.zeros(12, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> Any:
            scales = self.scales.float()
            weight = q.dequantize_per_channel.default(self.weight, scales, self.zeros, 0, -127, 127, torch.int8)
            return nn.functional.linear(x, weight.to(x.dtype))

    return Model(), [(torch.randn(3, 16),)]


def halves_of_bytes_by_rows() -> Built:
    """A linear layer with weights of 4 bits, a scale for each row."""
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.randint(-8, 8, (12, 16), dtype=torch.int8))
            self.scales = nn.Buffer(torch.rand(12) / 64 + 1 / 128)
            self.zeros = nn.Buffer(torch.zeros(12, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> Any:
            scales = self.scales.float()
            weight = q.dequantize_per_channel.default(self.weight, scales, self.zeros, 0, -8, 7, torch.int8)
            return nn.functional.linear(x, weight.to(x.dtype))

    return Model(), [(torch.randn(3, 16),)]


def words() -> Built:
    """A table of words of 4 bits in groups."""
    import torchao.quantization  # noqa: F401 - defines the operators

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Buffer(torch.randint(-8, 8, (11, 64), dtype=torch.int8))
            self.scales = nn.Buffer(torch.rand(11, 2) / 8 + 1 / 16)
            self.zeros = nn.Buffer(torch.zeros(11, 2, dtype=torch.int8))

        def forward(self, words: torch.Tensor) -> Any:
            stored = (self.table, [1, 32], self.scales.float(), self.zeros, torch.int8, -8, 7)
            table = torch.ops.torchao.dequantize_affine(*stored, output_dtype=torch.float32)
            return nn.functional.embedding(words, table)

    return Model(), [(torch.tensor([[3, 0, 10, 3], [7, 1, 2, 9]]),)]


def positions() -> Built:
    """Rotary embeddings that rotate neighbours, of queries with more heads than keys."""

    class Model(nn.Module):
        def forward(self, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
            query_r, query_i = query.float().reshape((*query.shape[:-1], -1, 2)).unbind(-1)
            key_r, key_i = key.float().reshape((*key.shape[:-1], -1, 2)).unbind(-1)
            cos, sin = cos.view(1, cos.shape[0], 1, cos.shape[1]), sin.view(1, sin.shape[0], 1, sin.shape[1])
            turned = [
                torch.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], dim=-1).flatten(3)
                for real, imaginary in ((query_r, query_i), (key_r, key_i))
            ]
            return turned[0].type_as(query), turned[1].type_as(key)

    return Model(), [(torch.randn(1, 3, 4, 16), torch.randn(1, 3, 2, 16), torch.randn(3, 8), torch.randn(3, 8))]


def positions_by_halves() -> Built:
    """Rotary embeddings that rotate halves of the first elements, not the rest, from a row of a table on."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            angles = torch.rand(9, 12) * 6
            self.cos, self.sin = nn.Buffer(angles.cos()), nn.Buffer(angles.sin())

        def turned(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
            first, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
            one, other = first[..., : first.shape[-1] // 2], first[..., first.shape[-1] // 2 :]
            crossed = torch.cat((-other.float(), one.float()), dim=-1)
            return torch.cat([(first.float() * cos) + (crossed * sin), rest], dim=-1).type_as(x)

        def forward(self, query: torch.Tensor, key: torch.Tensor) -> Any:
            cos, sin = self.cos[2:5].unsqueeze(1), self.sin[2:5].unsqueeze(1)
            return self.turned(query, cos, sin), self.turned(key, cos, sin)

    return Model(), [(torch.randn(1, 3, 4, 16), torch.randn(1, 3, 2, 16))]


def chosen_words() -> Built:
    """The logits of some words from those of all, and which of them are not 0."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.chosen = nn.Buffer(torch.tensor([3, 0, 6], dtype=torch.int32))

        def forward(self, x: torch.Tensor) -> Any:
            found = x.index_select(1, self.chosen)
            return found, (found * 3).to(torch.bool)

    return Model(), [(torch.randn(4, 7),)]


def attention_with_caches() -> Built:
    """Attention to caches that each call writes at a given position: heads in groups see no later positions."""
    import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401 - defines the operators

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.keys, self.values = nn.Buffer(torch.zeros(1, 7, 2, 8)), nn.Buffer(torch.zeros(1, 7, 2, 8))

        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, at: torch.Tensor) -> Any:
            first: Any = at[-1].item()
            torch._check(first >= 0)  # type: ignore[no-untyped-call]
            torch._check(first <= 5)  # type: ignore[no-untyped-call]
            if q.dtype == torch.float64:
                # The operators take float32: the exact form says what they compute.
                self.keys[:, first : first + 2], self.values[:, first : first + 2] = k, v
                seen = first + 2
                keys, values = (x[:, :seen].transpose(1, 2) for x in (self.keys, self.values))
                mask = torch.ones(2, seen, dtype=torch.bool).tril(first)
                attend = nn.functional.scaled_dot_product_attention
                return attend(q.transpose(1, 2), keys, values, mask, enable_gqa=True).transpose(1, 2)
            torch.ops.llama.update_cache(k, self.keys, first)
            torch.ops.llama.update_cache(v, self.values, first)
            return torch.ops.llama.custom_sdpa(q, self.keys, self.values, first, None, 0.0, True)

    def inputs(first: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(1, 2, 4, 8), torch.randn(1, 2, 2, 8), torch.randn(1, 2, 2, 8), torch.tensor([7, first])

    return Model(), [inputs(0), inputs(2), inputs(5), inputs(1)]


#: In the order in which they are joined.
MODELS: Final[tuple[Builder, ...]] = (
    weights_in_groups,
    weights_in_one_group,
    weights_in_groups_of_rounded_rows,
    bytes_by_rows,
    halves_of_bytes_by_rows,
    words,
    positions,
    positions_by_halves,
    chosen_words,
)
