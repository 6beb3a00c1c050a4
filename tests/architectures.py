"""Architectures without any tuning, small, with random weights: how each is built, its inputs, most delegates.

The point is agreement with eager; the count of delegates only guards against fragmentation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {"vocab_size": 100, **SMALL}


class One(nn.Module):
    """A model whose (first) tensor output counts."""

    def __init__(self, model: nn.Module, output: str = "", **settings: Any) -> None:
        super().__init__()
        self.model, self.output, self.settings = model, output, settings

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        result = self.model(*inputs, **self.settings)
        result = getattr(result, self.output) if self.output else result
        return result[0] if isinstance(result, tuple) else result


def image(size: int = 64) -> torch.Tensor:
    return torch.randn(1, 3, size, size)


def tokens(length: int = 16) -> torch.Tensor:
    return torch.randint(0, 100, (1, length))


def hidden(name: str, **settings: Any) -> nn.Module:
    """A transformers model with its hidden states as output."""
    configuration = getattr(transformers, f"{name}Config")(**settings)
    return One(getattr(transformers, f"{name}Model")(configuration), "last_hidden_state")


def causal(name: str, **settings: Any) -> nn.Module:
    """A transformers language model with its logits as output."""
    configuration = getattr(transformers, f"{name}Config")(**settings)
    return One(getattr(transformers, f"{name}ForCausalLM")(configuration), "logits", use_cache=False)


def layer(**settings: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **settings)


STATES = torch.randn(2, 5, 16)

ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...], int]] = {
    "LSTM": (lambda: One(nn.LSTM(8, 16, 2, batch_first=True)), (torch.randn(2, 5, 8),), 1),
    "GRU, bidirectional": (lambda: One(nn.GRU(8, 16, bidirectional=True)), (torch.randn(5, 2, 8),), 1),
    "RNN": (lambda: One(nn.RNN(8, 16)), (torch.randn(5, 2, 8),), 1),
    "multi-head attention": (lambda: One(nn.MultiheadAttention(16, 4, batch_first=True)), (STATES,) * 3, 1),
    "encoder": (lambda: nn.TransformerEncoder(layer(), 2), (STATES,), 1),
    "encoder, norm first": (lambda: One(layer(norm_first=True, activation="gelu")), (STATES,), 1),
    "encoder and decoder": (
        lambda: nn.Transformer(16, 4, 2, 2, 32, batch_first=True),
        (STATES, STATES[:, :3].contiguous()),
        1,
    ),
    "group and instance norm": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.SiLU(), nn.ConvTranspose2d(8, 4, 2, 2), nn.InstanceNorm2d(4)
        ),
        (image(16),),
        1,
    ),
    "pixel shuffle": (lambda: nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2)), (image(8),), 1),
    "ConvNext": (lambda: hidden("ConvNext", hidden_sizes=[8, 16, 32, 32], depths=[1, 1, 2, 1]), (image(),), 1),
    "Swin": (
        lambda: hidden("Swin", image_size=64, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
        (image(),),
        1,
    ),
    "GPT-2": (
        lambda: One(
            transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100)),
            "logits",
            use_cache=False,
        ),
        (tokens(),),
        1,
    ),
    "T5 encoder": (
        lambda: One(
            transformers.T5EncoderModel(
                transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100)
            ),
            "last_hidden_state",
        ),
        (tokens(),),
        1,
    ),
    "DistilBERT": (
        lambda: hidden("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=100),
        (tokens(),),
        1,
    ),
    "ALBERT": (lambda: hidden("Albert", embedding_size=16, **TEXT), (tokens(),), 1),
    "RoBERTa": (lambda: hidden("Roberta", **TEXT), (tokens(),), 1),
    "Electra": (lambda: hidden("Electra", embedding_size=16, **TEXT), (tokens(),), 1),
    "SegFormer": (
        lambda: hidden("Segformer", hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], decoder_hidden_size=32),
        (image(),),
        1,
    ),
    "CLIP vision": (lambda: hidden("CLIPVision", image_size=64, patch_size=16, **SMALL), (image(),), 1),
    "DeiT": (lambda: hidden("DeiT", image_size=64, **SMALL), (image(),), 1),
    "DINOv2": (
        lambda: hidden(
            "Dinov2", image_size=56, patch_size=14, hidden_size=32, num_hidden_layers=2, num_attention_heads=4
        ),
        (image(56),),
        1,
    ),
    "Qwen2": (lambda: causal("Qwen2", num_key_value_heads=2, **TEXT), (tokens(),), 1),
    "Gemma": (lambda: causal("Gemma", num_key_value_heads=1, head_dim=8, **TEXT), (tokens(),), 1),
    "Phi": (lambda: causal("Phi", **TEXT), (tokens(),), 1),
    "OPT": (
        lambda: causal(
            "OPT",
            vocab_size=100,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=64,
            word_embed_proj_dim=32,
        ),
        (tokens(),),
        1,
    ),
    "Mamba": (
        lambda: causal("Mamba", vocab_size=100, hidden_size=16, num_hidden_layers=2, state_size=4),
        (tokens(6),),
        3,
    ),
    "RegNet": (
        lambda: hidden("RegNet", embedding_size=16, hidden_sizes=[16, 32, 64, 64], depths=[1] * 4, groups_width=8),
        (image(),),
        1,
    ),
    "PoolFormer": (lambda: hidden("PoolFormer", hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1]), (image(),), 1),
    "LeViT": (
        lambda: hidden(
            "Levit",
            image_size=64,
            hidden_sizes=[32, 48, 64],
            num_attention_heads=[2, 3, 4],
            depths=[1, 1, 1],
            key_dim=[8, 8, 8],
        ),
        (image(),),
        1,
    ),
    "wav2vec 2": (
        lambda: hidden(
            "Wav2Vec2",
            conv_dim=(16, 16, 16),
            conv_stride=(5, 2, 2),
            conv_kernel=(10, 3, 3),
            num_feat_extract_layers=3,
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
            **SMALL,
        ),
        (torch.randn(1, 800),),
        1,
    ),
}
