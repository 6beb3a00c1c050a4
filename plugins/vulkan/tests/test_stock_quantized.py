"""Quantized programs that stock ExecuTorch lowered to its Vulkan delegate agree with the quantized module here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_vulkan.blob.reader import parse

from .stock import stock_buffer

pytestmark = [pytest.mark.needs_device, pytest.mark.slow]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 96), nn.Linear(96, 20, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


class Images(nn.Module):
    """Convolutions of all kinds, a sum, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.deep, self.point = nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Conv2d(8, 8, 1)
        self.groups = nn.Conv2d(8, 16, 3, padding=1, groups=2)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = x + self.point(torch.relu(self.deep(x)))
        x = torch.relu(self.groups(x))
        return self.head(x.mean((-2, -1)))


def operators_of(buffer: bytes) -> set[str]:
    """The operators in the delegates of a program."""
    names = set()
    start = buffer.find(b"VH00")
    while start >= 0:
        graph, _ = parse(buffer[start - 4 :])
        names |= {str(call.name) for call in graph.chain or []}
        start = buffer.find(b"VH00", start + 1)
    return names


def converted(model: nn.Module, quantizer: Any, inputs: tuple[Any, ...]) -> nn.Module:
    """The model after PyTorch's quantization in two steps."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    with torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(model.eval(), inputs).module(), quantizer)
        for _ in range(3):
            prepared(*(torch.randn_like(item) for item in inputs))
        prepared(*inputs)
        found: nn.Module = convert_pt2e(prepared)
    return found


def agree(model: nn.Module, inputs: tuple[Any, ...], operators: set[str], bound: float) -> None:
    """The operators are in the program, and results differ by at most `bound` of the largest one."""
    with torch.no_grad():
        wanted = model(*inputs)
    buffer = stock_buffer(model, inputs)
    assert operators <= operators_of(buffer)
    got = delegatekit.load(buffer)["forward"](*inputs)
    error = (got - wanted).abs().max() / wanted.abs().max()
    assert error <= bound, error


@pytest.mark.parametrize(
    ("bits", "operator"), [(8, "aten._weight_int8pack_mm.default"), (4, "et_vk.linear_qcs4w.default")]
)
def test_weights_of_the_vulkan_quantizer(bits: int, operator: str) -> None:
    found = pytest.importorskip("executorch.backends.vulkan.quantizer.vulkan_quantizer")
    quantizer = found.VulkanQuantizer().set_global(found.get_symmetric_quantization_config(weight_bits=bits))
    inputs = (torch.randn(3, 64),)
    agree(converted(Layers(), quantizer, inputs), inputs, {operator}, 1e-5)


def test_dynamic_integers_of_the_vulkan_quantizer() -> None:
    found = pytest.importorskip("executorch.backends.vulkan.quantizer.vulkan_quantizer")
    quantizer = found.VulkanQuantizer().set_global(found.get_symmetric_quantization_config(is_dynamic=True))
    inputs = (torch.randn(3, 64),)
    model = converted(Layers(), quantizer, inputs)
    # ExecuTorch's lowering does not round the activations, which PyTorch rounds to steps of 1/255 of their range.
    agree(model, inputs, {"quantized_decomposed.dequantize_per_channel.default"}, 2e-2)


@pytest.mark.parametrize("shape", [(1, 64), (2, 5, 64)], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_groups_of_torchao(dynamic: bool, shape: tuple[int, ...]) -> None:
    from torchao.quantization import granularity, quant_api

    model, group = Layers().eval(), granularity.PerGroup(32)
    config = (
        quant_api.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=group)
        if dynamic
        else quant_api.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=group)
    )
    quant_api.quantize_(model, config)
    operators = {"torchao.choose_qparams_affine.default", "et_vk.linear_dq8ca_q4gsw.default"}
    operators = operators if dynamic else {"et_vk.linear_q4gsw.default"}
    # A number between two integers may be rounded to the other one if a driver's division differs in its last bit.
    agree(model, (torch.randn(shape),), operators, 1e-2 if dynamic else 1e-5)


def test_integers_of_the_xnnpack_quantizer() -> None:
    found = pytest.importorskip("executorch.backends.xnnpack.quantizer.xnnpack_quantizer")
    quantizer = found.XNNPACKQuantizer().set_global(found.get_symmetric_quantization_config(is_per_channel=True))
    inputs = (torch.randn(2, 3, 16, 16),)
    operators = {f"et_vk.q8ta_{name}.default" for name in ("conv2d", "conv2d_dw", "conv2d_pw", "add", "linear")}
    # Integers next to a tie may differ by one step of a layer's output.
    agree(converted(Images(), quantizer, inputs), inputs, operators, 2e-2)


class Upsampled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.up = nn.Conv2d(3, 8, 3, padding=1), nn.ConvTranspose2d(8, 12, 3, 2, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.up(torch.relu(self.first(x)) + x.mean(1, keepdim=True)))


def test_transposed_integers_of_the_xnnpack_quantizer() -> None:
    found = pytest.importorskip("executorch.backends.xnnpack.quantizer.xnnpack_quantizer")
    quantizer = found.XNNPACKQuantizer().set_global(found.get_symmetric_quantization_config(is_per_channel=True))
    inputs = (torch.randn(1, 3, 8, 8),)
    operators = {"et_vk.q8ta_conv2d_transposed.default"}
    agree(converted(Upsampled(), quantizer, inputs), inputs, operators, 2e-2)
