"""Whole networks: one delegate each, and the same numbers in both runtimes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from delegatekit_conformance import testkit
from delegatekit_conformance.models import OneOutput, Tagger, UNet, build_model

#: There is no formula for whole networks: sums of hundreds of products follow one another, and norms in between reduce
#: errors. This is 168 roundings of float32 (2^-24 each), in some dozens of layers; users notice 1e-3.
BOUND = 1e-5
SMALL = ("resnet-50", "vit-base", "bert-base", "llama-100m", "whisper-tiny encoder", "u-net")
_LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.mark.parametrize("name", ["mobilenet-v2", *(pytest.param(name, marks=pytest.mark.sweep) for name in SMALL)])
def test_a_network_is_one_delegate_that_is_right(name: str) -> None:
    pytest.importorskip("transformers")
    case = build_model(name, small=True)
    testkit.compare(testkit.lower(case.module, *case.inputs, backend="openvino"), tolerance=BOUND)


def _hidden(name: str, **settings: Any) -> nn.Module:
    """A model of transformers with its last states as output.

    Its own first weights are so small that images vanish on their way.
    """
    import transformers

    configuration = getattr(transformers, f"{name}Config")(**settings)
    model = OneOutput(getattr(transformers, f"{name}Model")(configuration), "last_hidden_state")
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return model


def _image() -> tuple[torch.Tensor, ...]:
    return (torch.randn(1, 3, 64, 64),)


def _tokens() -> tuple[torch.Tensor, ...]:
    """Ids, and a mask that hides the last ones."""
    return torch.randint(0, 100, (1, 16)), torch.ones(1, 16, dtype=torch.int64).index_fill(1, torch.arange(12, 16), 0)


#: Networks that this backend was not written for: how each is built, and its inputs.
FOREIGN: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "ConvNeXt": (lambda: _hidden("ConvNext", hidden_sizes=[8, 16, 32, 32], depths=[1, 1, 2, 1]), _image),
    "MobileViT": (
        lambda: _hidden(
            "MobileViT",
            image_size=64,
            hidden_sizes=[16, 24, 32],
            neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 32],
            num_attention_heads=2,
        ),
        _image,
    ),
    "MobileViTV2": (lambda: _hidden("MobileViTV2", image_size=64, width_multiplier=0.25), _image),
    "Swinv2": (
        lambda: _hidden("Swinv2", image_size=64, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
        _image,
    ),
    "wav2vec 2": (
        lambda: _hidden(
            "Wav2Vec2",
            num_feat_extract_layers=2,
            num_conv_pos_embedding_groups=2,
            num_conv_pos_embeddings=8,
            **dict.fromkeys(("conv_kernel", "conv_stride"), (10, 4)),
            conv_dim=(16, 16),
            **_LAYERS,
        ),
        lambda: (torch.randn(1, 800),),
    ),
    "LSTM": (lambda: Tagger(100, 16, 8, 2), lambda: (torch.randint(0, 100, (2, 12)),)),
    "U-Net": (lambda: UNet(8, 4), _image),
    "MiniLM": (lambda: _hidden("Bert", vocab_size=100, max_position_embeddings=16, **_LAYERS), _tokens),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.sweep) for name in FOREIGN])
def test_a_foreign_network_is_one_delegate_that_is_right(name: str) -> None:
    pytest.importorskip("transformers")
    build, inputs = FOREIGN[name]
    torch.manual_seed(0)
    testkit.compare(testkit.lower(build(), *inputs(), backend="openvino"), tolerance=BOUND)
