"""Models of the gallery: a sentence encoder, a decoder, two image networks, a detector, speech, keywords.

Each function returns what `delegatekit lower models.py:NAME` takes: module and inputs, with dynamic shapes where sizes
change, or an exported program. Weights are random and seeded. With `DELEGATEKIT_GALLERY=tiny` in the environment the
models are small enough for tests; otherwise they have common sizes.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from delegatekit_conformance.models import build_model

TINY = os.environ.get("DELEGATEKIT_GALLERY") == "tiny"
Inputs = tuple[torch.Tensor, ...]


def _built(name: str) -> tuple[nn.Module, Inputs]:
    case = build_model(name, small=TINY)
    return case.module, case.inputs


def sentences() -> torch.export.ExportedProgram:
    """A sentence encoder of MiniLM's form, for batches and lengths that change: ids and mask (B, T) -> (B, D)."""
    return build_model("sentences, any batch and length", small=TINY).export()


def sentence() -> tuple[nn.Module, Inputs]:
    """The same for two sentences of one length."""
    return _built("sentences, any batch and length")


def qwen() -> tuple[nn.Module, Inputs]:
    """A decoder of Qwen's form without a cache: ids (1, T) -> logits (1, T, V)."""
    return _built("qwen")


def unet() -> tuple[nn.Module, Inputs]:
    """A U-Net: image (1, 3, H, W) -> logits of five classes (1, 5, H, W)."""
    return _built("u-net")


def unets() -> tuple[nn.Module, Inputs, dict[str, Any], dict[str, Any]]:
    """The same for an image whose sides are any multiples of 4, and dynamic_shapes that say so."""
    model, (image,) = unet()
    height, width = (torch.export.Dim(side, min=2, max=image.shape[2] // 4) for side in ("height", "width"))
    return model, (image,), {}, {"image": {2: 4 * height, 3: 4 * width}}


def whisper_encoder() -> tuple[nn.Module, Inputs]:
    """Whisper's encoder: spectrogram (1, M, 2 S) -> states (1, S, D)."""
    return _built("whisper-tiny encoder")


def whisper_decoder() -> torch.export.ExportedProgram:
    """Whisper's decoder for texts of any length: ids (1, T), states (1, S, D) -> logits (1, T, V)."""
    return build_model("whisper-tiny decoder, any length", small=TINY).export()


class Inverted(nn.Module):
    """A block of MobileNetV3: expansion, depthwise convolution, squeeze and excitation, projection."""

    def __init__(self, inputs: int, hidden: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = stride == 1 and inputs == outputs
        self.expand = nn.Sequential(nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.Hardswish())
        self.depthwise = nn.Sequential(
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), nn.Hardswish()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(hidden, hidden // 4, 1),
            nn.ReLU(),
            nn.Conv2d(hidden // 4, hidden, 1),
            nn.Hardsigmoid(),
        )
        self.project = nn.Sequential(nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        hidden = self.depthwise(self.expand(x))
        result: torch.Tensor = self.project(hidden * self.squeeze(hidden))
        return x + result if self.residual else result


class MobileNetV3(nn.Module):
    """A classifier of MobileNetV3's blocks: (B, 3, H, W) -> logits (B, classes)."""

    def __init__(self, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        first, *_, last = widths
        self.stem = nn.Sequential(nn.Conv2d(3, first, 3, 2, 1, bias=False), nn.BatchNorm2d(first), nn.Hardswish())
        blocks = [Inverted(a, 4 * a, b, 1 if a == b else 2) for a, b in pairwise(widths)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.Linear(last, 2 * last), nn.Hardswish(), nn.Linear(2 * last, classes))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits of the classes."""
        logits: torch.Tensor = self.head(self.blocks(self.stem(image)).mean((2, 3)))
        return logits


def mobilenet() -> tuple[nn.Module, Inputs]:
    """A MobileNetV3: image (1, 3, H, W) -> logits (1, classes)."""
    torch.manual_seed(0)
    widths, size = ((8, 8, 16), 32) if TINY else ((16, 16, 24, 24, 40, 40, 48, 96, 96), 224)
    return MobileNetV3(widths, 10).eval(), (torch.randn(1, 3, size, size),)


class Detector(nn.Module):
    """A detector with selection and suppression: image (1, 3, S, S) -> boxes (K, 4), scores (K,), classes (K,).

    These are the K best. Boxes are corners in pixels. Of two boxes of one class that overlap by more than half, the
    weaker one's score becomes 0.
    """

    def __init__(self, width: int, classes: int, size: int, best: int) -> None:
        super().__init__()
        widths = (3, width, 2 * width, 2 * width)
        self.backbone = nn.Sequential(
            *(
                layer
                for a, b in pairwise(widths)
                for layer in (nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            )
        )
        self.classify = nn.Conv2d(2 * width, classes, 1)
        self.regress = nn.Conv2d(2 * width, 4, 1)
        cells = torch.arange(size // 8) * 8.0 + 4.0
        y, x = torch.meshgrid(cells, cells, indexing="ij")
        self.register_buffer("centers", torch.stack([x, y], -1).reshape(-1, 2))
        self.best = best

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The best boxes, by falling score."""
        features = self.backbone(image)
        probability = self.classify(features)[0].flatten(1).T.sigmoid()
        sides = self.regress(features)[0].flatten(1).T.exp() * 16
        centers = self.get_buffer("centers")
        boxes = torch.cat([centers - sides[:, :2], centers + sides[:, 2:]], 1)
        scores, classes = probability.amax(1), probability.argmax(1)
        scores, chosen = scores.topk(self.best)
        boxes, classes = boxes[chosen], classes[chosen]
        overlaps = self.overlap(boxes) * (classes.unsqueeze(0) == classes.unsqueeze(1))
        suppressed = overlaps.tril(-1).amax(1) > 0.5
        return boxes, torch.where(suppressed, 0.0, scores), classes

    @staticmethod
    def overlap(boxes: torch.Tensor) -> torch.Tensor:
        """The intersections of boxes (K, 4) over their unions: (K, K)."""
        low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
        high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
        common = (high - low).clamp(min=0).prod(-1)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
        return common / (area[:, None] + area[None, :] - common)


def detector() -> tuple[nn.Module, Inputs]:
    """The detector, for images of 32 or 320 pixels."""
    torch.manual_seed(0)
    width, size, best = (8, 32, 5) if TINY else (32, 320, 100)
    model: Any = Detector(width, 3, size, best)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    nn.init.normal_(model.regress.weight, std=0.02)
    return model.eval(), (torch.randn(1, 3, size, size),)


class KeywordSpotter(nn.Module):
    """A small depthwise separable network: spectrogram (1, 1, frames, bands) -> logits (1, words)."""

    def __init__(self, width: int, blocks: int, words: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, width, (10, 4), 2, (4, 1)), nn.BatchNorm2d(width), nn.ReLU()]
        for _ in range(blocks):
            layers += [nn.Conv2d(width, width, 3, padding=1, groups=width), nn.BatchNorm2d(width), nn.ReLU()]
            layers += [nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, words)

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        """Logits of the words."""
        logits: torch.Tensor = self.head(self.body(spectrogram).mean((2, 3)))
        return logits


def keywords() -> tuple[nn.Module, Inputs]:
    """The keyword spotter, for a second of speech in 49 frames of 10 bands."""
    torch.manual_seed(0)
    model = KeywordSpotter(*((8, 1) if TINY else (64, 4)), 12)
    return model.eval(), (torch.randn(1, 1, 49, 10),)
