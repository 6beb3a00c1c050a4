"""Programs quantized by each scheme: parts lowered to integers, and the results on a device compared with eager."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_api import DelegateKitError
from delegatekit_conformance.testkit import lower

from .blobs import operators

PRODUCTS = ("int8-weight-only", "int4-weight-only", "int8-dynamic-int4")


class Images(nn.Module):
    """Strided, depthwise, pointwise, grouped and transposed convolutions, sums and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.depth = nn.Conv2d(16, 16, 3, 1, 1, groups=16)
        self.point = nn.Conv2d(16, 16, 1)
        self.groups = nn.Conv2d(16, 8, 3, padding=1, groups=2, bias=False)
        self.up = nn.ConvTranspose2d(8, 8, 3, 2, 1, output_padding=1)
        self.head, self.last = nn.Linear(8, 12), nn.Linear(12, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(self.point(nn.functional.relu6(self.depth(x))) + x)
        x = self.up(self.groups(x))
        return self.last(torch.relu(self.head(x.mean((2, 3)))))


class Layers(nn.Module):
    """Linear layers that share an input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 48), nn.Linear(64, 33, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(self.first(x)), self.second(x)


def quantized(model: nn.Module, *inputs: torch.Tensor, scheme: str = "int8", **options: Any) -> Any:
    samples = [tuple(torch.randn_like(item) for item in inputs) for _ in range(4)]
    return delegatekit.quantize(model.eval(), samples, backend="vulkan", scheme=scheme, options=options)


def step(model: Any) -> float:
    """One step of the integers that the model's result is dequantized from."""
    scales = [node.args[1] for node in model.graph.nodes if "dequantize_per_tensor" in str(node.target)]
    return float(scales[-1])


def test_convolutions_sums_and_linear_layers_compute_on_int8() -> None:
    model = quantized(Images(), torch.randn(1, 3, 24, 24))
    found = operators(lower(model, torch.randn(1, 3, 24, 24), backend="vulkan"))
    wanted = ("conv2d", "conv2d_dw", "conv2d_pw", "add", "conv2d", "conv2d_transposed", "linear_gemv", "linear_gemv")
    assert [name for name in found if "q8ta" in name] == [f"et_vk.q8ta_{name}.default" for name in wanted]
    on_numbers = {
        "aten.convolution.default",
        "et_vk.conv_with_clamp.default",
        "aten.linear.default",
        "aten.relu.default",
    }
    assert not on_numbers.intersection(found)


def test_rows_of_more_axes_are_quantized_once() -> None:
    x = torch.randn(1, 3, 2, 64)
    found = operators(lower(quantized(Layers(), x, scheme="int8-dynamic-int4"), x, backend="vulkan"))
    assert found.count("torchao.choose_qparams_affine.default") == 1
    assert "torchao.dequantize_affine.default" not in found


@pytest.mark.needs_device
def test_int8_gives_the_integers_of_eager_mode_but_for_ties() -> None:
    x = torch.randn(1, 3, 24, 24)
    model = quantized(Images(), x)
    (result,) = lower(model, x, backend="vulkan").run()
    assert (result - model(x)).abs().max() <= 1.001 * step(model)


@pytest.mark.needs_device
@pytest.mark.parametrize("scheme", PRODUCTS)
@pytest.mark.parametrize("shape", [(3, 64), (1, 1, 64), (2, 5, 64), (2, 1, 3, 64)], ids=str)
def test_linear_layers_with_integer_weights_agree_with_eager(scheme: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    model = quantized(Layers(), x, scheme=scheme)
    for got, want in zip(lower(model, x, backend="vulkan").run(), model(x), strict=True):
        # Sums of 64 products in float32.
        torch.testing.assert_close(got, want, rtol=0, atol=64 * 2.0**-23 * float(want.detach().abs().max()))


@pytest.mark.needs_device
def test_weights_of_four_bits_serve_half_precision() -> None:
    x = torch.randn(2, 64)
    model = quantized(Layers(), x, scheme="int4-weight-only", fp16=True)
    for name, value in model.state_dict().items():
        assert not name.endswith("_scale") or torch.equal(value, value.half().float())
    lowered = lower(model, x, backend="vulkan", options={"fp16": True})
    assert operators(lowered).count("et_vk.linear_q4gsw.default") == 2
    for got, want in zip(lowered.run(), model(x), strict=True):
        # Inputs, the bias and results are rounded to 11 bits each.
        torch.testing.assert_close(got, want, rtol=0, atol=3 * 2.0**-11 * float(want.detach().abs().max()))


def test_rows_that_several_layers_read_are_quantized_once() -> None:
    x = torch.randn(2, 5, 64)
    found = operators(lower(quantized(Layers(), x, scheme="int8-dynamic-int4"), x, backend="vulkan"))
    assert found.count("torchao.choose_qparams_affine.default") == 1
    assert found.count("et_vk.linear_dq8ca_q4gsw.default") == 2


@pytest.mark.parametrize(("scheme", "bits"), [("int8-weight-only", 8), ("int4-weight-only", 4)])
def test_the_file_has_the_weights_as_integers(scheme: str, bits: int) -> None:
    x = torch.randn(1, 512)
    model = quantized(nn.Linear(512, 512, bias=False), x, scheme=scheme)
    size = len(lower(model, x, backend="vulkan").buffer)
    scales = 4 * 512 * (1 if bits == 8 else 512 // 32)
    assert 512 * 512 * bits // 8 < size < 512 * 512 * bits // 8 + scales + 8192


@pytest.mark.needs_device
@pytest.mark.parametrize("scheme", PRODUCTS)
def test_sizes_that_change_are_computed_right(scheme: str) -> None:
    x = torch.randn(3, 64)
    model = quantized(Layers(), x, scheme=scheme)
    rows = torch.export.Dim("rows", min=1, max=7)
    lowered = lower(model, x, backend="vulkan", dynamic_shapes=({0: rows},))
    for count in (7, 2, 5):
        x = torch.randn(count, 64)
        for got, want in zip(lowered.run(x), model(x), strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=64 * 2.0**-23 * float(want.detach().abs().max()))


def test_weights_that_become_numbers_are_named_with_the_reason() -> None:
    x = torch.randn(3, 64)
    model = quantized(Layers(), x, scheme="int4-weight-only")
    rows = torch.export.Dim("rows", min=1, max=7)
    with pytest.warns(UserWarning, match=r"integers \(48, 64\) of aten\.linear.*for the same sizes in every call"):
        lower(model, x, backend="vulkan", dynamic_shapes=({0: rows},))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        lower(model, x, backend="vulkan")


@pytest.mark.needs_device
def test_groups_that_the_runtime_does_not_read_are_named_and_computed_in_float() -> None:
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup, quantize_

    model = nn.Linear(12, 5).eval()
    quantize_(model, IntxWeightOnlyConfig(torch.int4, PerGroup(6)))
    x = torch.randn(2, 12)
    with pytest.warns(UserWarning, match="in groups of 6, the runtime reads 4 bits, and"):
        lowered = lower(model, x, backend="vulkan")
    torch.testing.assert_close(lowered.run()[0], model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-38, 1e38 * 2])
def test_scales_that_devices_lose_are_refused_with_the_reason(scale: float) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            integers = torch.ops.quantized_decomposed.quantize_per_tensor.default(x, scale, 0, -128, 127, torch.int8)
            return torch.ops.quantized_decomposed.dequantize_per_tensor.default(
                integers, scale, 0, -128, 127, torch.int8
            )

    program = delegatekit.explain(Model(), (torch.randn(3),), backends=["vulkan"])
    assert "is no normal float32" in str(program)


def test_a_linear_layer_of_several_matrices_is_left_in_float_with_the_reason() -> None:
    with pytest.raises(DelegateKitError, match=r"it computes on numbers, by aten\._weight_int8pack_mm"):
        quantized(nn.Linear(16, 8), torch.randn(2, 3, 16))


def test_weights_may_have_more_channels_than_textures_have_layers() -> None:
    """Convolutions pack their weights themselves: 80 * 120 layers of a texture would be too many."""
    model = quantized(nn.Conv2d(80, 120, 1), torch.randn(1, 80, 2, 2))
    found = operators(lower(model, torch.randn(1, 80, 2, 2), backend="vulkan"))
    assert "et_vk.q8ta_conv2d_pw.default" in found


@pytest.mark.needs_device
def test_zeros_before_a_convolution_are_its_own_padding() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ZeroPad2d(1), nn.Conv2d(8, 8, 3, groups=8))
    x = torch.randn(1, 3, 6, 6)
    found = quantized(model, x)
    lowered = lower(found, x, backend="vulkan")
    names = [name for name in operators(lowered) if "quantize_per_tensor" not in name]
    assert names == ["et_vk.q8ta_conv2d_pw.default", "et_vk.q8ta_conv2d_dw.default"]
    (result,) = lowered.run()
    assert (result - found(x)).abs().max() <= 1.001 * step(found)


@pytest.mark.needs_device
def test_zeros_on_one_side_only_stay_a_padding_of_their_own() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(8, 8, 3, 2, groups=8))
    x = torch.randn(1, 3, 6, 6)
    found = quantized(model, x)
    lowered = lower(found, x, backend="vulkan")
    assert operators(lowered).count("aten.constant_pad_nd.default") == 1
    assert sum("q8ta" in name for name in operators(lowered)) == 2
    (result,) = lowered.run()
    assert (result - found(x)).abs().max() <= 1.001 * step(found)


def test_a_clamp_that_the_integers_do_not_make_stays() -> None:
    """The scale covers up to 8, the clamp up to 6: larger results must not occur."""
    weight = torch.randint(-127, 127, (8, 4, 1, 1), dtype=torch.int8)
    ops = torch.ops.quantized_decomposed

    def model(x: torch.Tensor) -> torch.Tensor:
        x = ops.quantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8)
        x = ops.dequantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8)
        numbers = ops.dequantize_per_channel(
            weight, torch.full((8,), 0.01), torch.zeros(8, dtype=torch.int64), 0, -127, 127, torch.int8
        )
        y = nn.functional.relu6(nn.functional.conv2d(x, numbers))
        y = ops.quantize_per_tensor(y, 8 / 255, -128, -128, 127, torch.int8)
        return ops.dequantize_per_tensor(y, 8 / 255, -128, -128, 127, torch.int8)

    x = 4 * torch.randn(1, 4, 5, 5)
    assert "et_vk.conv_with_clamp.default" in operators(lower(model, x, backend="vulkan"))
