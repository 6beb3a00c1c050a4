"""The reasons for which calls are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import delegatekit
from delegatekit_conformance import testkit
from delegatekit_conformance.cases.requantized import FORMS, rewritten
from delegatekit_cortexm import plugin
from delegatekit_cortexm.options import CortexMOptions
from delegatekit_toolkit.testing import as_module


def reasons(model: Any, *inputs: torch.Tensor) -> dict[str, str]:
    """Operator -> the backend's reason, for what it leaves."""
    explained = delegatekit.explain(as_module(model), inputs, backends=["cortexm"])
    return {row.operator: row.reasons["cortexm"] for row in explained.rows if "cortexm" in row.reasons}


def kept(model: Any, *inputs: torch.Tensor) -> str:
    """What quantization says of the layers that it leaves in float."""
    whole = nn.Sequential(nn.Conv2d(4, 4, 1), as_module(model)).eval()
    return str(delegatekit.quantize(whole, [inputs], backend="cortexm", progress=False).quantization)


torch.manual_seed(0)
IMAGE = torch.randn(1, 4, 8, 8)


def test_what_is_not_quantized_stays_outside() -> None:
    found = reasons(nn.Linear(4, 4), torch.ones(1, 4))
    assert found == {"aten.linear.default": "computes in float32, but the library computes on int8: quantize the model"}


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: F.max_pool2d(x, 3, dilation=2), "windows with dilation (2, 2)"),
        (lambda x: F.max_pool2d(x, 3, ceil_mode=True), "rounded up (ceil_mode)"),
        (lambda x: F.avg_pool2d(x, 2, divisor_override=3), "divides by 3"),
        (lambda x: F.adaptive_avg_pool2d(x, 3), "is not a multiple of"),
        (lambda x: x.mean(1), "that over height and width of images is taken"),
        (lambda x: torch.softmax(x, 1), "over axis 1 of 4: the last one is taken"),
        (lambda x: torch.matmul(x, x[:, :1]), "batches of"),
    ],
)
def test_the_reason_is_told(function: Callable[..., torch.Tensor], reason: str) -> None:
    assert reason in kept(function, IMAGE)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.ConvTranspose2d(4, 4, 3, stride=2, output_padding=1), "with output padding (1, 1)"),
        (nn.ConvTranspose2d(4, 4, 3, groups=2), "of 2 groups"),
        (nn.ConvTranspose2d(4, 4, 3, dilation=2), "with dilation (2, 2)"),
    ],
)
def test_transposed_convolutions_that_the_library_lacks(layer: nn.Module, reason: str) -> None:
    assert reason in kept(layer, IMAGE)


def test_operators_are_left_out_on_request() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 4)).eval()
    module = delegatekit.quantize(model, [(torch.randn(2, 4),)], backend="cortexm", progress=False)
    options = {"cortexm": {"leave_out": "sigmoid"}}
    program = delegatekit.lower(module, (torch.randn(2, 4),), backends=["cortexm"], options=options)
    (method,) = delegatekit.report(program).methods
    assert method.fallback == {"aten::sigmoid.out": 1} and len(method.delegates) == 2
    x = torch.randn(2, 4)
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](x), module(x))


def test_a_sum_whose_result_has_far_smaller_steps_is_left() -> None:
    x = 100 * torch.randn(2, 4)
    model = as_module(lambda x, y: x - y)
    module = delegatekit.quantize(model, [(x, x)], backend="cortexm", progress=False)
    told = reasons(module, x, x)["aten.sub.Tensor"]
    assert "of its result is too small beside" in told


def test_a_bias_that_integers_cannot_hold_is_left() -> None:
    layer = nn.Linear(16, 8)
    nn.init.normal_(layer.weight, std=1e-6)
    model, x = nn.Sequential(layer).eval(), 1e-12 * torch.randn(4, 16)
    module = delegatekit.quantize(model, [(x,)], backend="cortexm", progress=False)
    found = testkit.refusals(plugin.create_partitioner(CortexMOptions()), module, x)
    assert any("in steps of its sums exceeds 32 bits" in reason for reason in found), found
    program = delegatekit.lower(module, (x,), backends=["cortexm"])
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](x), module(x))


def test_an_integer_bias_of_other_steps_is_left_where_integers_cannot_hold_it() -> None:
    layers, x = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).eval(), torch.randn(4, 16)
    module = delegatekit.quantize(layers, [(x,)], backend="cortexm", progress=False)
    # Its bias keeps the steps that it had.
    assert rewritten(module, FORMS["a-tiny-channel"]) == 2
    program = delegatekit.lower(torch.export.export(module, (x,), strict=False), backends=["cortexm"])
    found = testkit.refusals(plugin.create_partitioner(CortexMOptions()), module, x)
    assert any("in steps of its sums exceeds 32 bits" in reason for reason in found), found
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](x), module(x))
