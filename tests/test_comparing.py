"""Compare raises no false alarm: models with random weights are right on every backend that runs here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
import torch
from selecting import SELECTING, selecting
from torch import nn

import delegatekit
from delegatekit.plugins import get_backend
from delegatekit_api import UnsupportedError
from delegatekit_conformance.models import build_model

#: A backend, its options, and the scheme that the model is quantized by, if it is.
Setting = tuple[str, Mapping[str, Any], str | None]
SETTINGS: Final[Mapping[str, Setting]] = {
    "reference": ("reference", {}, None),
    "xnnpack": ("xnnpack", {}, None),
    "xnnpack, 8 bits": ("xnnpack", {}, ""),
    "vulkan": ("vulkan", {}, None),
    "vulkan, float16": ("vulkan", {"fp16": True}, None),
    "coreml, float16": ("coreml", {}, None),
    "coreml, float32": ("coreml", {"precision": "float32"}, None),
    "ethosu, 8 bits": ("ethosu", {}, ""),
    "qnn, float16": ("qnn", {}, None),
}


class Block(nn.Module):
    """Convolutions, one of them depthwise, with batch norms and a sum around them, as in MobileNetV2."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.wide = nn.Sequential(nn.Conv2d(width, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6())
        self.deep = nn.Sequential(
            nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False), nn.BatchNorm2d(24), nn.ReLU6()
        )
        self.narrow = nn.Sequential(nn.Conv2d(24, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(self.deep(self.wide(x)))


class Tagger(nn.Module):
    """An LSTM over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(x)
        return self.head(states).softmax(-1)


class Across(nn.Module):
    """Downsampling, upsampling and a skip connection, as in a U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.bottom = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high = self.down(x).relu()
        low = self.bottom(nn.functional.max_pool2d(high, 2)).relu()
        return self.out(torch.cat([self.up(low), high], 1)).sigmoid()


def transformer() -> nn.Module:
    return nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), nn.Linear(16, 4))


MODELS: Final[Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]] = {
    "convolutions": (Block, (1, 8, 8, 8)),
    "lstm": (Tagger, (1, 4, 8)),
    "u-net": (Across, (1, 3, 16, 16)),
    "transformer": (transformer, (1, 6, 16)),
}


@pytest.fixture
def setting(request: pytest.FixtureRequest) -> Setting:
    """One of SETTINGS, if its backend can compile and run here."""
    found = SETTINGS[request.param]
    backend = get_backend(found[0])
    for answer in (backend.compiler_availability(), backend.runtime_availability()):
        if not answer.available:
            pytest.skip(f"{found[0]}: {answer.reason}")
    return found


def judged(module: nn.Module, inputs: Any, setting: Setting, **more: Any) -> delegatekit.Comparison:
    name, options, scheme = setting
    return delegatekit.compare(module, inputs, backends=[name], options={name: options}, scheme=scheme, **more)


@pytest.mark.sweep
@pytest.mark.parametrize("setting", SETTINGS, indirect=True)
@pytest.mark.parametrize("name", MODELS)
def test_small_models_are_right(name: str, setting: Setting) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    found = judged(make().eval(), (torch.randn(shape),), setting)
    assert found.right, str(found)
    compared = [item for item in found.operators if not item.skipped]
    assert len(compared) == len(found.operators) > 1


@pytest.mark.sweep
@pytest.mark.parametrize("setting", [name for name in SETTINGS if SETTINGS[name][2] is None], indirect=True)
@pytest.mark.parametrize("name", SELECTING)
def test_models_that_select_are_right(name: str, setting: Setting) -> None:
    try:
        found = judged(*selecting(name), setting)
    except UnsupportedError as refused:
        assert name == "stable sort", refused
        pytest.skip(str(refused))
    assert found.right, str(found)


#: Larger ones.
LARGE: Final = ("mobilenet-v2", "bert-base", "llama-100m", "lstm tagger", "early exit", "u-net", "experts, any length")


@pytest.mark.slow
@pytest.mark.parametrize("setting", [name for name in SETTINGS if SETTINGS[name][2] is None], indirect=True)
@pytest.mark.parametrize("name", LARGE)
def test_larger_models_are_right(name: str, setting: Setting) -> None:
    pytest.importorskip("transformers")
    model = build_model(name, small=True)
    found = judged(model.module, model.inputs, setting, dynamic_shapes=model.dynamic_shapes)
    assert found.right, str(found)
