"""Patterns: what backends fuse, fold and rewrite, as small modules, each with eager's numbers as the measure.

A builder uses nothing but torch: its text is the snippet that a report shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .base import Case
from .subjects import Built, Register

pattern = Register("patterns", measure=True, cost=0.5)


# -- convolutions ----------------------------------------------------------------------------------------------------


@pattern("conv-bn-relu")
def conv_bn_relu() -> Built:
    """A convolution with a batch norm whose statistics are not trivial, and a relu."""
    norm = nn.BatchNorm2d(8)
    norm.running_mean = torch.randn(norm.num_features)
    norm.running_var = torch.rand(norm.num_features) + 0.5
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), norm, nn.ReLU()), [(torch.randn(2, 3, 9, 9),)]


@pattern("conv-without-bias-bn")
def conv_without_bias_bn() -> Built:
    """The batch norm brings the bias; no activation."""
    norm = nn.BatchNorm2d(8, affine=False)
    norm.running_mean = torch.randn(norm.num_features)
    norm.running_var = torch.rand(norm.num_features) + 0.5
    return nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), norm), [(torch.randn(1, 3, 9, 9),)]


@pattern("conv-relu6")
def conv_relu6() -> Built:
    """Both ends of a fused clamp."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU6()), [(6 * torch.randn(1, 3, 9, 9),)]


@pattern("conv-hardswish")
def conv_hardswish() -> Built:
    """An activation that few kernels fuse."""
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Hardswish()), [(3 * torch.randn(1, 3, 8, 8),)]


@pattern("conv-silu")
def conv_silu() -> Built:
    """SiLU behind a convolution, as in detectors."""
    return nn.Sequential(nn.Conv2d(3, 8, 1), nn.SiLU()), [(torch.randn(1, 3, 8, 8),)]


@pattern("bn-conv")
def bn_conv() -> Built:
    """A batch norm before a padded convolution: folding it forward would be wrong at the border."""
    norm = nn.BatchNorm2d(4)
    norm.running_mean = torch.randn(norm.num_features)
    norm.running_var = torch.rand(norm.num_features) + 0.5
    return nn.Sequential(norm, nn.Conv2d(4, 6, 3, padding=1)), [(torch.randn(1, 4, 7, 7),)]


@pattern("conv-used-twice")
def conv_used_twice() -> Built:
    """The convolution's result is needed before and behind the relu: the relu must not be fused away."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.conv(x)
            return y, nn.functional.relu(y), nn.functional.relu(y) + y

    return Model(), [(torch.randn(1, 3, 8, 8),)]


@pattern("convolution-kinds")
def convolution_kinds() -> Built:
    """A value that is read by windows, through groups and pixel by pixel; samples of very different size."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, (3, 5), stride=(1, 2), padding=(1, 0))
            self.wide, self.groups = nn.Conv2d(8, 8, 3, padding=2, dilation=2), nn.Conv2d(8, 8, 3, padding=1, groups=2)
            self.point = nn.Conv2d(8, 8, 1)

        def forward(self, x: torch.Tensor) -> Any:
            y = nn.functional.relu(self.stem(x))
            return nn.functional.relu(self.wide(y) + self.groups(y)) + self.point(y)

    return Model(), [(torch.randn(3, 3, 9, 12) * torch.tensor([1.0, 10.0, 0.1]).view(3, 1, 1, 1),)]


@pattern("patches-and-class-token")
def patches_and_class_token() -> Built:
    """Patches of an image as tokens behind a learned one, with learned positions, as vision transformers begin."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.layer = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 8)
            self.token, self.positions = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))

        def forward(self, x: torch.Tensor) -> Any:
            tokens = self.patches(x).flatten(2).transpose(1, 2)
            return self.layer(torch.cat([self.token, tokens], 1) + self.positions)

    return Model(), [(torch.randn(1, 3, 8, 8),)]


@pattern("linear-over-columns")
def linear_over_columns() -> Built:
    """Feature maps whose columns a linear layer mixes: what is stored with its channels last has columns last, too."""
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Linear(6, 6), nn.Conv2d(6, 4, 1))
    return model, [(torch.randn(2, 3, 7, 8),)]


@pattern("convolutions-over-time")
def convolutions_over_time() -> Built:
    """One-dimensional convolutions, one of which halves the rate, as in front of speech recognisers."""
    model = nn.Sequential(
        nn.Conv1d(4, 8, 3, padding=1), nn.GELU(), nn.Conv1d(8, 8, 3, 2, 1), nn.GELU(), nn.Conv1d(8, 6, 1)
    )
    return model, [(torch.randn(2, 4, 11),)]


@pattern("depthwise-separable")
def depthwise_separable() -> Built:
    """Depthwise and pointwise convolutions with batch norm and relu6, as in MobileNet."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
            self.first = nn.BatchNorm2d(8)
            self.pointwise = nn.Conv2d(8, 12, 1, bias=False)
            self.second = nn.BatchNorm2d(12)

        def forward(self, x: torch.Tensor) -> Any:
            x = nn.functional.relu6(self.first(self.depthwise(x)))
            return nn.functional.relu6(self.second(self.pointwise(x)))

    return Model(), [(torch.randn(1, 8, 10, 10),)]


@pattern("inverted-residual")
def inverted_residual() -> Built:
    """Expand, depthwise, project, and the input added again."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.expand = nn.Conv2d(4, 16, 1)
            self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
            self.project = nn.Conv2d(16, 4, 1)

        def forward(self, x: torch.Tensor) -> Any:
            return x + self.project(nn.functional.relu6(self.depthwise(nn.functional.relu6(self.expand(x)))))

    return Model(), [(torch.randn(1, 4, 8, 8),)]


@pattern("residual-relu")
def residual_relu() -> Built:
    """Two convolutions, a shortcut with a convolution of its own, a sum and a relu."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(4, 8, 3, stride=2, padding=1)
            self.second = nn.Conv2d(8, 8, 3, padding=1)
            self.shortcut = nn.Conv2d(4, 8, 1, stride=2)

        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.relu(self.second(nn.functional.relu(self.first(x))) + self.shortcut(x))

    return Model(), [(torch.randn(2, 4, 9, 9),)]


@pattern("squeeze-excite")
def squeeze_excite() -> Built:
    """Channels weighted by a gate that is computed from their means."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.squeeze = nn.Conv2d(8, 2, 1)
            self.excite = nn.Conv2d(2, 8, 1)

        def forward(self, x: torch.Tensor) -> Any:
            gate = nn.functional.adaptive_avg_pool2d(x, 1)
            return x * torch.sigmoid(self.excite(nn.functional.silu(self.squeeze(gate))))

    return Model(), [(torch.randn(1, 8, 7, 7),)]


@pattern("pooling-head")
def pooling_head() -> Built:
    """Global average pooling, flatten, dropout, linear."""
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 5))
    return model, [(torch.randn(2, 6, 5, 5),)]


@pattern("mean-head")
def mean_head() -> Built:
    """The same, written as a mean over height and width."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 5)

        def forward(self, x: torch.Tensor) -> Any:
            return self.head(x.mean((2, 3))).log_softmax(-1)

    return Model(), [(torch.randn(2, 6, 5, 5),)]


@pattern("pad-conv")
def pad_conv() -> Built:
    """Padding on two sides only, as TensorFlow's "same" is exported."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, stride=2)

        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.relu(self.conv(nn.functional.pad(x, (0, 1, 0, 1))))

    return Model(), [(torch.randn(1, 3, 8, 8),)]


@pattern("pad-with-a-number-conv")
def pad_with_a_number_conv() -> Built:
    """Padding with 0.5 must not become the convolution's own padding."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> Any:
            return self.conv(nn.functional.pad(x, (1, 1, 1, 1), value=0.5))

    return Model(), [(torch.randn(1, 3, 8, 8),)]


@pattern("upsample-skip")
def upsample_skip() -> Built:
    """Nearest neighbours twice as large, joined with a skip connection."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(6, 4, 3, padding=1)

        def forward(self, x: torch.Tensor, skip: torch.Tensor) -> Any:
            return nn.functional.relu(self.conv(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), skip], 1)))

    return Model(), [(torch.randn(1, 4, 4, 4), torch.randn(1, 2, 8, 8))]


@pattern("resize-bilinear")
def resize_bilinear() -> Built:
    """Bilinear resizing between convolutions, to twice the size and to a given one."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x: torch.Tensor) -> Any:
            y = nn.functional.interpolate(self.first(x), scale_factor=2.0, mode="bilinear")
            return nn.functional.interpolate(self.second(y), size=(9, 7), mode="bilinear", align_corners=True)

    return Model(), [(torch.randn(1, 3, 4, 5),)]


@pattern("transposed-conv-groups")
def transposed_conv_groups() -> Built:
    """A transposed convolution with groups and one pixel of output padding, whose scales are far apart."""
    layer = nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2)
    layer.weight.data[:, 0] *= 20
    return nn.Sequential(nn.Conv2d(3, 4, 3), layer, nn.ReLU()), [(torch.randn(2, 3, 6, 5),)]


@pattern("transposed-conv-relu")
def transposed_conv_relu() -> Built:
    """A transposed convolution that doubles the size."""
    return nn.Sequential(nn.ConvTranspose2d(4, 6, 4, 2, 1), nn.ReLU()), [(torch.randn(1, 4, 5, 5),)]


@pattern("channels-last-chain")
def channels_last_chain() -> Built:
    """Convolutions and a linear layer on an input that lies in memory with its channels last."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    return model, [(torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last),)]


@pattern("pixel-shuffle")
def pixel_shuffle() -> Built:
    """A convolution whose channels become pixels."""
    return nn.Sequential(nn.Conv2d(2, 12, 3, padding=1), nn.PixelShuffle(2)), [(torch.randn(1, 2, 5, 5),)]


@pattern("channel-shuffle")
def channel_shuffle() -> Built:
    """Channels exchanged between the groups of two grouped convolutions."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(6, 6, 1, groups=3)
            self.second = nn.Conv2d(6, 6, 3, padding=1, groups=6)

        def forward(self, x: torch.Tensor) -> Any:
            x = nn.functional.relu(self.first(x))
            n, c, h, w = x.shape
            x = x.view(n, 3, c // 3, h, w).transpose(1, 2).reshape(n, c, h, w)
            return self.second(x)

    return Model(), [(torch.randn(2, 6, 5, 5),)]


# -- linear layers and norms -----------------------------------------------------------------------------------------


@pattern("linear-gelu")
def linear_gelu() -> Built:
    """The exact GELU."""
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)), [(torch.randn(2, 5, 8),)]


@pattern("linear-gelu-tanh")
def linear_gelu_tanh() -> Built:
    """GELU by tanh: another function than the exact one, by up to 5e-4."""
    return nn.Sequential(nn.Linear(8, 16), nn.GELU("tanh")), [(2 * torch.randn(2, 5, 8),)]


@pattern("gelu-written-out")
def gelu_written_out() -> Built:
    """GELU as checkpoints of before 2020 write it."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            exact = x * 0.5 * (1.0 + torch.erf(x / 1.4142135623730951))
            return exact, 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))

    return Model(), [(2 * torch.randn(3, 7),)]


@pattern("linear-relu-chain")
def linear_relu_chain() -> Built:
    """Four linear layers of different widths."""
    layers = [nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 3), nn.ReLU(), nn.Linear(3, 9), nn.Tanh(), nn.Linear(9, 1)]
    return nn.Sequential(*layers), [(torch.randn(4, 7),), (torch.randn(4, 7),)]


@pattern("addmm-chain")
def addmm_chain() -> Built:
    """Linear layers spelled as products with a matrix that is stored the other way round, as in GPT-2."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.shift = nn.Parameter(torch.randn(32, 64) / 6), nn.Parameter(torch.randn(64))
            self.second, self.third = nn.Parameter(torch.randn(64, 32) / 8), nn.Parameter(torch.randn(8, 32) / 6)

        def forward(self, x: torch.Tensor) -> Any:
            y = nn.functional.gelu(torch.addmm(self.shift, x.view(-1, 32), self.first))
            return torch.mm(y @ self.second, self.third.t()) + self.shift[:8]

    return Model(), [(torch.randn(2, 5, 32),)]


@pattern("swiglu")
def swiglu() -> Built:
    """The gated feed-forward layer of Llama."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up = nn.Linear(8, 20, bias=False), nn.Linear(8, 20, bias=False)
            self.down = nn.Linear(20, 8, bias=False)

        def forward(self, x: torch.Tensor) -> Any:
            return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))

    return Model(), [(torch.randn(1, 6, 8),)]


@pattern("geglu-chunk")
def geglu_chunk() -> Built:
    """One linear layer whose result is cut into gate and value."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both, self.down = nn.Linear(8, 24), nn.Linear(12, 8)

        def forward(self, x: torch.Tensor) -> Any:
            value, gate = self.both(x).chunk(2, -1)
            return self.down(value * nn.functional.gelu(gate))

    return Model(), [(torch.randn(2, 3, 8),)]


@pattern("layer-norm")
def layer_norm() -> Built:
    """With weights, without, and over two dimensions."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(8)
            nn.init.normal_(self.norm.weight)
            nn.init.normal_(self.norm.bias)

        def forward(self, x: torch.Tensor) -> Any:
            return self.norm(x), nn.functional.layer_norm(x, (8,)), nn.functional.layer_norm(x, (5, 8))

    return Model(), [(torch.randn(2, 5, 8) + 1,)]


@pattern("layer-norm-written-out")
def layer_norm_written_out() -> Built:
    """Mean and variance by hand."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))

        def forward(self, x: torch.Tensor) -> Any:
            centred = x - x.mean(-1, keepdim=True)
            variance = (centred * centred).mean(-1, keepdim=True)
            return centred / torch.sqrt(variance + 1e-5) * self.weight + self.bias

    return Model(), [(torch.randn(2, 5, 8),)]


@pattern("rms-norm")
def rms_norm() -> Built:
    """torch's own, and Llama's written out."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.RMSNorm(8, eps=1e-6)
            nn.init.normal_(self.norm.weight)

        def forward(self, x: torch.Tensor) -> Any:
            written = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            return self.norm(x), self.norm.weight * written

    return Model(), [(torch.randn(2, 5, 8),)]


@pattern("group-norm-silu")
def group_norm_silu() -> Built:
    """Group norm, SiLU and a convolution, as in diffusion models."""
    model = nn.Sequential(nn.GroupNorm(2, 6), nn.SiLU(), nn.Conv2d(6, 4, 3, padding=1))
    return model, [(torch.randn(2, 6, 5, 5),)]


@pattern("instance-norm")
def instance_norm() -> Built:
    """Statistics of each channel of each image."""
    return nn.Sequential(nn.InstanceNorm2d(4, affine=True), nn.ReLU()), [(torch.randn(2, 4, 6, 6),)]


@pattern("l2-normalise")
def l2_normalise() -> Built:
    """Embeddings of length 1, and their cosines."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            x, y = nn.functional.normalize(x, dim=-1), nn.functional.normalize(y, dim=-1)
            return x @ y.T

    return Model(), [(torch.randn(4, 8), torch.randn(3, 8))]


# -- attention -------------------------------------------------------------------------------------------------------


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
    """True is what counts: the opposite of masked_fill."""

    class Model(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> Any:
            return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    mask = torch.tensor([True, True, False, True, False]).expand(1, 1, 5, 5).contiguous()
    return Model(), [(*(torch.randn(1, 2, 5, 8) for _ in range(3)), mask)]


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
    """Llama's rotation of halves, and the one of neighbours."""

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


# -- constants and small algebra -------------------------------------------------------------------------------------


@pattern("shared-weight")
def shared_weight() -> Built:
    """One weight in two layers and, transposed, in a third."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.linear(torch.tanh(self.layer(torch.relu(self.layer(x)))), self.layer.weight.t())

    return Model(), [(torch.randn(3, 8),)]


@pattern("weight-from-constants")
def weight_from_constants() -> Built:
    """Weights computed from constants: weight norm written out, and a reshaped kernel."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.direction, self.length = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.rand(4, 1) + 0.5)

        def forward(self, x: torch.Tensor) -> Any:
            weight = self.length * self.direction / self.direction.norm(dim=1, keepdim=True)
            return nn.functional.linear(x, weight) + (weight.sum(1) * 2).exp()

    return Model(), [(torch.randn(3, 6),)]


@pattern("weight-as-output")
def weight_as_output() -> Built:
    """A weight that a layer uses is returned, too."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x), self.layer.weight, self.layer.bias + 1, x

    return Model(), [(torch.randn(2, 4),)]


@pattern("weight-as-input")
def weight_as_input() -> Built:
    """A linear layer whose weight changes from call to call."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
            return torch.relu(nn.functional.linear(x, weight, bias))

    return Model(), [(torch.randn(2, 4), torch.randn(3, 4), torch.randn(3)) for _ in range(2)]


@pattern("x-plus-x")
def x_plus_x() -> Built:
    """A value with itself, and with itself again."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y = x + x
            return y * y, y - y, torch.cat([x, x, y], 1), torch.maximum(y, y)

    return Model(), [(torch.randn(3, 4),)]


@pattern("clamps")
def clamps() -> Built:
    """Clamps one behind the other, one with its ends the wrong way round, relu of a clamp."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y = x.clamp(-1, 1).clamp(min=-0.5).clamp(max=0.25)
            return (
                y,
                nn.functional.relu(x.clamp(-2, 0.5)),
                x.clamp(0.5, -0.5),
                nn.functional.relu6(nn.functional.relu(x * 5)),
                nn.functional.relu(x).clamp(-1, 3),
            )

    return Model(), [(2 * torch.randn(4, 5),)]


@pattern("functions")
def functions() -> Built:
    """Elementwise functions behind a convolution: roots, squares, exponentials and logarithms, maxima and minima."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.conv(x)
            z = nn.functional.hardtanh(y, 0.5, 2.0)
            grown, shrunk = torch.exp(-y), torch.log(z) + torch.sqrt(z)
            return torch.maximum(y, torch.square(z)), torch.minimum(y, shrunk), grown, z**2

    return Model(), [(torch.randn(1, 3, 6, 6),)]


@pattern("scaled")
def scaled() -> Built:
    """Products and quotients of a computed value with numbers and with a constant for each channel."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.scale = nn.Conv2d(3, 4, 3), nn.Parameter(torch.rand(4, 1, 1) + 0.5)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.conv(x)
            return nn.functional.relu(y * -0.5), y / 3.0, y * self.scale, nn.functional.avg_pool2d(y * self.scale, 4)

    return Model(), [(torch.randn(1, 3, 6, 6),)]


@pattern("scalars")
def scalars() -> Built:
    """Arithmetic with Python numbers on either side."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return (2 - x) * 3 + 1, 1 / (x * x + 2), -x / 4, x // 0.5, x**3, 2.0 ** (x / 4), (x + 1) ** 2

    return Model(), [(torch.tensor([[-1.3, 0.7, 2.1], [0.1, -2.6, 1.9]]),)]


@pattern("integers-and-floats")
def integers_and_floats() -> Built:
    """Type promotion: integers times floats, true division of integers, bools summed up."""

    class Model(nn.Module):
        def forward(self, n: torch.Tensor, x: torch.Tensor) -> Any:
            return n * x, n / 2, n // 2, n % 3, (n > 1).sum(), (n > 1) * x, n + 1.5, n.float().mean()

    return Model(), [(torch.randint(-5, 6, (3, 4)), torch.randn(3, 4))]


@pattern("relu-as-maximum")
def relu_as_maximum() -> Built:
    """Activations in other words."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return (
                torch.maximum(x, torch.zeros(())),
                torch.where(x > 0, x, 0.1 * x),
                x * torch.sigmoid(x),
                x * nn.functional.relu6(x + 3) / 6,
                (x.exp() + 1).log(),
            )

    return Model(), [(torch.randn(3, 5),)]


@pattern("views-around-an-operator")
def views_around_an_operator() -> Built:
    """Permutations that cancel, reshapes that merge, a transpose into a product."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y = x.permute(0, 2, 3, 1).relu().permute(0, 3, 1, 2)
            z = x.reshape(2, -1).reshape(2, 3, 16).transpose(1, 2)
            return y, z @ z.transpose(1, 2), x.flatten(1).view(2, 3, 4, 4).tanh(), y.mT @ y

    return Model(), [(torch.randn(2, 3, 4, 4),)]


@pattern("square-of-a-transpose")
def square_of_a_transpose() -> Built:
    """A transposed value multiplied by itself, which the stock XNNPACK runtime gets wrong in its plain form."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 1)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            x, y = self.conv(x), y.permute(1, 0, 2)
            return x @ x, y @ y, y @ y.mT, y.mT @ y

    return Model(), [(torch.randn(1, 4, 6, 6), torch.randn(6, 4, 6))]


@pattern("element-of-a-constant")
def element_of_a_constant() -> Built:
    """Constants of one element that are views with odd strides into larger ones."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Buffer(torch.randn(1, 7))

        def forward(self, x: torch.Tensor) -> Any:
            return x * self.table.unbind(1)[5], x + self.table[:, 3], self.table[:, 2::5]

    return Model(), [(torch.randn(2),)]


@pattern("split-and-cat")
def split_and_cat() -> Built:
    """Parts worked on by themselves and put together in another order."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            a, b, c = x.split_with_sizes([1, 2, 3], 1)
            return torch.cat([c.relu(), a, -b, a], 1), torch.stack([x, -x], 2).flatten(1)

    return Model(), [(torch.randn(2, 6, 3),)]


@pattern("slices")
def slices() -> Built:
    """Overlapping windows, steps, negative ends, and a sum of shifted copies."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x[:, 1:] - x[:, :-1], x[:, ::2] * 2, x[:, -3:], x[:, 2], x[..., None, :2], x.roll(1, 1) + x

    return Model(), [(torch.randn(3, 7),)]


@pattern("dead-branch")
def dead_branch() -> Built:
    """Work that nobody needs, an input that nobody reads, an output twice."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, unused: torch.Tensor) -> Any:
            torch.sort(x.exp(), 1)
            y = x.tanh()
            return y, x, y

    return Model(), [(torch.randn(2, 4), torch.randn(3))]


@pattern("nested-outputs")
def nested_outputs() -> Built:
    """A dict with a list and a tuple in it, and a None."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return {"values": [x.relu(), (x.tanh(),)], "nothing": None, "x": x + 1}

    return Model(), [(torch.randn(2, 4),)]


@pattern("argmax-gather")
def argmax_gather() -> Built:
    """The best class, its score, and the three best."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            best = x.argmax(-1, keepdim=True)
            values, indices = x.softmax(-1).topk(3, -1)
            return best, x.gather(-1, best), values, indices

    return Model(), [(torch.randn(4, 7),)]


@pattern("half-precision-inside")
def half_precision_inside() -> Built:
    """Integers that are exact in float16 go there and back."""

    class Model(nn.Module):
        def forward(self, n: torch.Tensor) -> Any:
            return (n.half() * 2 + 1).float().relu() - 3

    return Model(), [(torch.randint(-9, 9, (3, 4)),)]


@pattern("lstm-cell")
def lstm_cell() -> Built:
    """One step of an LSTM, its gates written out."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.Linear(12, 32)

        def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
            i, f, g, o = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c

    return Model(), [(torch.randn(2, 4), torch.randn(2, 8), torch.randn(2, 8))]


@pattern("gru")
def gru() -> Built:
    """nn.GRU over four steps."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(4, 6, batch_first=True)

        def forward(self, x: torch.Tensor) -> Any:
            return self.gru(x)[0]

    return Model(), [(torch.randn(2, 4, 4),)]


def cases() -> Iterator[Case]:
    """All patterns."""
    yield from pattern.cases.values()
