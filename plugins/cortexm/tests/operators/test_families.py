"""Each family of operators: all of it on the library, and at most a step away from the quantized module in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

Run = Callable[..., list[str]]

torch.manual_seed(0)
X, IMAGE = torch.randn(3, 8), torch.randn(1, 4, 9, 7)
MATRIX = torch.randn(2, 3, 5)


class Shaped(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 6, 3, padding=1)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.first(x))


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (nn.Linear(8, 5), ["quantized_linear"]),
        (nn.Linear(8, 5, bias=False), ["quantized_linear"]),
        (nn.Sequential(nn.Linear(8, 5), nn.ReLU()), ["quantized_linear"]),
        (nn.Sequential(nn.Linear(8, 5), nn.Hardtanh(-0.25, 0.5)), ["quantized_linear"]),
    ],
)
@pytest.mark.parametrize("target", ["cortex-m55", "cortex-m33", "cortex-m0"])
def test_linears(operators: Run, layer: nn.Module, names: list[str], target: str) -> None:
    assert operators(layer, X, target=target, scheme="int8-linear") == names
    assert operators(layer, X[None], target=target, scheme="int8-linear") == names


def test_a_linear_with_a_scale_for_each_output_is_a_convolution(operators: Run) -> None:
    assert operators(nn.Linear(8, 5), X) == ["quantized_conv2d"]


@pytest.mark.parametrize(
    ("layer", "shape", "name"),
    [
        (nn.Conv2d(4, 6, 3), (1, 4, 9, 7), "quantized_conv2d"),
        (nn.Conv2d(4, 6, (3, 1), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), (2, 4, 9, 7), "quantized_conv2d"),
        (nn.Conv2d(4, 6, 3, groups=2, bias=False), (1, 4, 9, 7), "quantized_conv2d"),
        (nn.Conv2d(1, 6, 3), (1, 1, 9, 7), "quantized_depthwise_conv2d"),
        (nn.Conv2d(4, 8, 3, groups=4, padding=1), (1, 4, 9, 7), "quantized_depthwise_conv2d"),
        (nn.Conv2d(4, 4, 3, groups=4, bias=False), (2, 4, 9, 7), "quantized_conv2d"),
        (nn.Conv1d(4, 6, 3, stride=2), (1, 4, 9), "quantized_conv2d"),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1), (1, 4, 5, 6), "quantized_transpose_conv2d"),
        (nn.ConvTranspose1d(4, 6, 3, stride=2), (1, 4, 5), "quantized_transpose_conv2d"),
    ],
)
@pytest.mark.parametrize("bounded", [False, True])
def test_convolutions(operators: Run, layer: nn.Module, shape: tuple[int, ...], name: str, bounded: bool) -> None:
    net = nn.Sequential(layer, nn.ReLU6()) if bounded else layer
    assert operators(net, torch.randn(shape)) == [name]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x, y: x + y, ["quantized_add"]),
        (lambda x, y: x - y, ["quantized_add"]),
        (lambda x, y: torch.add(x, y, alpha=3), ["quantized_add"]),
        (lambda x, y: torch.sub(x, y, alpha=2), ["quantized_add"]),
        (lambda x, y: torch.relu(x + y), ["quantized_add"]),
        (lambda x, y: x * y, ["quantized_mul"]),
        (lambda x, y: torch.clamp(x * y, -0.5, 0.25), ["quantized_mul"]),
        (lambda x, y: x / (torch.abs(y) + 1.5), ["quantized_activation", "quantized_activation", "quantized_div"]),
        (lambda x, y: x + y[:1], ["quantized_activation", "quantized_add"]),
        (lambda x, y: x * y[:, :1], ["quantized_activation", "quantized_mul"]),
    ],
)
def test_arithmetic(operators: Run, function: Callable[..., torch.Tensor], names: list[str]) -> None:
    assert operators(function, X, torch.randn(3, 8)) == names


@pytest.mark.parametrize("function", [torch.maximum, torch.minimum])
def test_choices(operators: Run, function: Callable[..., torch.Tensor]) -> None:
    found = operators(function, X, torch.randn(3, 8), steps=2)
    assert found[-1] == function.__name__ and set(found) <= {function.__name__, "quantized_activation"}


class Channels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 6, 3)
        self.factor = nn.Parameter(torch.rand(6, 1, 1) + 0.5)

    def forward(self, x: torch.Tensor) -> Any:
        return self.first(x) * self.factor + self.factor


def test_a_number_for_each_channel_is_not_expanded(replaced: Run) -> None:
    calls = replaced(Channels(), IMAGE, steps=2)
    assert "cortex_m::quantized_mul.out" in calls and "cortex_m::quantized_add.out" in calls
    assert "aten::expand_copy.out" not in calls


FUNCTIONS = (
    *(torch.sigmoid, torch.tanh, F.gelu, F.silu, F.hardswish, F.hardsigmoid, F.elu, F.leaky_relu, torch.exp, torch.abs),
    *(torch.relu, F.relu6, lambda x: torch.sqrt(torch.abs(x)), lambda x: x * 2.0 + 1.0),
    lambda x: torch.rsqrt(x * x + 1),
)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_are_tables_without_any_error(operators: Run, function: Callable[..., torch.Tensor]) -> None:
    # (Other scales of the same integers need no table.)
    assert set(operators(function, X, steps=0)) <= {"quantized_activation"}


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: F.max_pool2d(x, 2), "quantized_max_pool2d"),
        (lambda x: F.max_pool2d(x, 3, stride=1, padding=1), "quantized_max_pool2d"),
        (lambda x: F.avg_pool2d(x, 2), "quantized_avg_pool2d"),
        (lambda x: F.avg_pool2d(x, 3, padding=1, count_include_pad=False), "quantized_avg_pool2d"),
        (lambda x: F.adaptive_avg_pool2d(x, 1), "quantized_avg_pool2d"),
        (lambda x: F.adaptive_avg_pool2d(x, (3, 7)), "quantized_avg_pool2d"),
        (lambda x: x.mean((2, 3)), "quantized_avg_pool2d"),
    ],
)
def test_pools(operators: Run, function: Callable[..., torch.Tensor], name: str) -> None:
    assert operators(Shaped(function), IMAGE) == ["quantized_conv2d", name]


def test_an_average_that_counts_the_padding_is_padded(operators: Run) -> None:
    found = operators(Shaped(lambda x: F.avg_pool2d(x, 3, padding=1)), IMAGE)
    assert found == ["quantized_conv2d", "pad", "quantized_avg_pool2d"]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x.flatten(1), []),
        (lambda x: x.permute(0, 2, 3, 1), ["transpose"]),
        (lambda x: F.pad(x, (1, 2, 0, 1)), ["pad"]),
        (lambda x: x[:, 1:4, ::2], []),
        (lambda x: x[:, 1], []),
        (lambda x: torch.cat([x, x], 1), []),
        (lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 2, 3), ["quantized_avg_pool2d"]),
    ],
)
def test_what_moves_values_stays_in_integers(
    operators: Run, function: Callable[..., torch.Tensor], names: list[str]
) -> None:
    assert operators(Shaped(function), IMAGE) == ["quantized_conv2d", *names]


def test_a_view_of_an_image_takes_one_copy_and_a_view_of_that_none(replaced: Run) -> None:
    calls = replaced(Shaped(lambda x: x.flatten(1).view(1, 7, -1)), IMAGE)
    assert calls.count("dim_order_ops::_clone_dim_order.out") == 2  # the input's, and that of the view
    assert not [name for name in calls if "view" in name]


def test_softmax(operators: Run) -> None:
    assert operators(lambda x: torch.softmax(x, -1), X) == ["softmax"]


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_products_of_computed_matrices(operators: Run, batch: tuple[int, ...]) -> None:
    left, right = torch.randn(*batch, 3, 5), torch.randn(*batch, 5, 4)
    assert operators(torch.matmul, left, right) == ["transpose", "quantized_batch_matmul"]


def test_attention(operators: Run) -> None:
    query, key, value = (torch.randn(1, 2, 4, 8) for _ in range(3))
    found = operators(F.scaled_dot_product_attention, query, key, value, steps=4)
    assert found.count("quantized_batch_matmul") == 2 and "softmax" in found


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.Hardswish())
        self.wide = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU6())
        self.point = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Hardsigmoid())
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.stem(x)
        y = self.point(self.wide(x))
        y = x + y * self.gate(y)
        return self.head(F.avg_pool2d(y, 8).flatten(1))


def test_a_network_with_residuals_and_gates_is_one_program(operators: Run) -> None:
    found = operators(Residual().eval(), torch.randn(1, 3, 16, 16), steps=3)
    assert found[0] == "quantized_conv2d" and found[-1] == "quantized_conv2d"
    assert {"quantized_depthwise_conv2d", "quantized_mul", "quantized_add", "quantized_avg_pool2d"} <= set(found)
