"""Small networks of the kinds that are lowered most, with random weights: how each is built, and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import delegatekit

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Block(nn.Sequential):
    """Convolution, batch norm, activation."""

    def __init__(self, into: int, out: int, stride: int = 1, groups: int = 1, size: int = 3) -> None:
        super().__init__(
            nn.Conv2d(into, out, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(out), nn.SiLU()
        )


class Detector(nn.Module):
    """Convolutions to a grid of boxes; the best are selected, those that overlap suppressed, and the rest sorted."""

    def __init__(self, classes: int = 4, kept: int = 16) -> None:
        super().__init__()
        self.kept = kept
        self.body = nn.Sequential(Block(3, 16, 2), Block(16, 32, 2), Block(32, 32), Block(32, 32, 2))
        self.boxes, self.classes = nn.Conv2d(32, 4, 1), nn.Conv2d(32, classes, 1)

    def forward(self, picture: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(1, 3, H, W) -> boxes (K, 4), scores (K), classes (K)."""
        features = self.body(picture)
        boxes = self.boxes(features).flatten(2)[0].t().sigmoid()
        scores, classes = self.classes(features).flatten(2)[0].t().sigmoid().max(1)
        scores, order = scores.topk(self.kept)
        boxes, classes = boxes[order], classes[order]
        corner, size = boxes[:, :2], boxes[:, 2:]
        least = torch.maximum(corner[:, None], corner[None])
        most = torch.minimum((corner + size)[:, None], (corner + size)[None])
        common = (most - least).clamp(min=0).prod(2)
        area = size.prod(1)
        overlap = common / (area[:, None] + area[None] - common)
        worse = torch.ones(self.kept, self.kept).triu(1)  # of two, the second has the lower score
        alive = ((overlap * worse) > 0.5).sum(0) == 0
        scores = torch.where(alive, scores, torch.zeros_like(scores))
        scores, order = scores.sort(descending=True)
        return boxes[order], scores, classes[order]


class UNet(nn.Module):
    """Down and up again, with what was seen on the way down."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.deep = Block(3, 12), Block(12, 24), Block(24, 32)
        self.up, self.again = nn.ConvTranspose2d(32, 24, 2, 2), Block(48, 24)
        self.last, self.out = Block(36, 12), nn.Conv2d(12, 2, 1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """(1, 3, H, W) -> (1, 2, H, W)."""
        one = self.first(picture)
        two = self.second(nn.functional.max_pool2d(one, 2))
        up = self.again(torch.cat([self.up(self.deep(nn.functional.max_pool2d(two, 2))), two], 1))
        return self.out(self.last(torch.cat([nn.functional.interpolate(up, scale_factor=2.0), one], 1)))


class Sentence(nn.Module):
    """An encoder of tokens whose states are averaged to one vector of length 1, as MiniLM's."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(200, 48), nn.Embedding(32, 48)
        layer = nn.TransformerEncoderLayer(48, 4, 96, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(1, T) ids and mask -> (1, 48)."""
        states = self.encoder(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        weights = mask.unsqueeze(-1).to(states.dtype)
        return nn.functional.normalize((states * weights).sum(1) / weights.sum(1).clamp(min=1e-9), dim=-1)


class Speech(nn.Module):
    """Convolutions over a spectrogram, an encoder, and a decoder that looks at both, as Whisper's."""

    def __init__(self) -> None:
        super().__init__()
        self.listen = nn.Sequential(nn.Conv1d(20, 32, 3, padding=1), nn.GELU(), nn.Conv1d(32, 32, 3, 2, 1), nn.GELU())
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True, activation="gelu")
        self.words = nn.Embedding(100, 32)
        self.decoder = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True, norm_first=True, activation="gelu")

    def forward(self, spectrogram: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """(1, 20, T) and (1, N) token ids -> (1, N, 100) logits."""
        heard = self.encoder(self.listen(spectrogram).transpose(1, 2))
        length = tokens.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        return self.decoder(self.words(tokens), heard, tgt_mask=mask) @ self.words.weight.t()


class Decoder(nn.Module):
    """One layer of a language model with rotary positions, RMS norms and a gated product, as Qwen's."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(200, width)
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.queries, self.keys, self.values, self.mix = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(width, 128), nn.Linear(width, 128), nn.Linear(128, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(1, T) token ids -> (1, T, 200) logits."""
        states = self.words(tokens)
        length = tokens.shape[1]
        angles = torch.arange(length)[:, None] * 0.5 ** torch.arange(states.shape[-1] // self.heads // 2)

        def turned(x: torch.Tensor) -> torch.Tensor:
            one, two = x.chunk(2, -1)
            return torch.cat([one * angles.cos() - two * angles.sin(), two * angles.cos() + one * angles.sin()], -1)

        def split(x: torch.Tensor) -> torch.Tensor:
            return x.view(1, length, self.heads, -1).transpose(1, 2)

        x = self.first(states)
        seen = nn.functional.scaled_dot_product_attention(
            turned(split(self.queries(x))), turned(split(self.keys(x))), split(self.values(x)), is_causal=True
        )
        states = states + self.mix(seen.transpose(1, 2).reshape(1, length, -1))
        x = self.second(states)
        states = states + self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return states @ self.words.weight.t()


class Mobile(nn.Module):
    """Inverted residuals with squeeze and excitation and hard activations, as MobileNetV3's."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.Hardswish())
        self.wide = nn.Sequential(nn.Conv2d(16, 48, 1), nn.Hardswish())
        self.deep = nn.Sequential(nn.Conv2d(48, 48, 3, padding=1, groups=48), nn.Hardswish())
        self.squeeze = nn.Sequential(nn.Conv2d(48, 12, 1), nn.ReLU(), nn.Conv2d(12, 48, 1), nn.Hardsigmoid())
        self.narrow, self.say = nn.Conv2d(48, 16, 1), nn.Linear(16, 10)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """(1, 3, H, W) -> (1, 10) logits."""
        x = self.stem(picture)
        wide = self.deep(self.wide(x))
        x = x + self.narrow(wide * self.squeeze(wide.mean((2, 3), keepdim=True)))
        return self.say(x.mean((2, 3)))


def _mobile_int8() -> Built:
    inputs = (torch.randn(1, 3, 64, 64),)
    module: Any = delegatekit.quantize(Mobile().eval(), [inputs], backend="xnnpack", progress=False)
    return module, inputs


def _tokens(length: int, count: int) -> torch.Tensor:
    return torch.randint(0, count, (1, length))


NETWORKS: dict[str, Callable[[], Built]] = {
    "detector": lambda: (Detector(), (torch.randn(1, 3, 96, 96),)),
    "U-Net": lambda: (UNet(), (torch.randn(1, 3, 48, 48),)),
    "sentence encoder": lambda: (Sentence(), (_tokens(24, 200), torch.ones(1, 24, dtype=torch.int64))),
    "speech": lambda: (Speech(), (torch.randn(1, 20, 60), _tokens(8, 100))),
    "decoder": lambda: (Decoder(), (_tokens(16, 200),)),
    "mobile, int8": _mobile_int8,
}


def network(name: str) -> Built:
    """A network in eval mode and its inputs: the same on every call."""
    torch.manual_seed(0)
    module, inputs = NETWORKS[name]()
    return (module if name.endswith("int8") else module.eval()), inputs
