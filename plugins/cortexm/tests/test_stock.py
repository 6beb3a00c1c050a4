"""Side by side with stock's passes on programs that stock's quantizer made: the same calls with the same arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import delegatekit

pytest.importorskip("executorch.backends.cortex_m.passes", reason="stock ExecuTorch is not installed")

from cortexm_stock import calls, stock_file
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e


class Layers(nn.Module):
    """What stock has kernels for, in an order that its passes keep."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.wide = nn.Conv2d(8, 16, 3, groups=8, bias=False)
        self.up = nn.ConvTranspose2d(16, 6, 2, stride=2)
        self.last = nn.Linear(6 * 9, 10)

    def forward(self, x: torch.Tensor) -> Any:
        x = F.max_pool2d(torch.relu(self.first(x)), 3)
        x = self.wide(x)
        x = x + torch.sigmoid(x)
        x = x * torch.tanh(x) - x
        x = F.avg_pool2d(self.up(x), 2, 2, count_include_pad=False)  # (otherwise stock pads, by nothing)
        return self.last(x.flatten(1))


class Products(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x, y.transpose(1, 2))


def quantized(module: nn.Module, *inputs: torch.Tensor) -> Any:
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer

    graph: Any = torch.export.export(module.eval(), inputs).module(check_guards=False)
    prepared = prepare_pt2e(graph, CortexMQuantizer())
    prepared(*inputs)
    return convert_pt2e(prepared)


torch.manual_seed(0)
IMAGE = torch.randn(1, 3, 15, 15).to(memory_format=torch.channels_last)


@pytest.mark.sweep
@pytest.mark.parametrize(("target", "cpu"), [("cortex-m55", "M55"), ("cortex-m7", "M7"), ("cortex-m0plus", "M0PLUS")])
def test_the_calls_and_their_arguments_are_those_of_stock(target: str, cpu: str) -> None:
    torch.manual_seed(0)
    module = quantized(Layers(), IMAGE)
    program = delegatekit.lower(
        torch.export.export(module, (IMAGE,)), backends=["cortexm"], options={"cortexm": {"target": target}}
    )
    ours, theirs = calls(program.buffer), calls(stock_file(torch.export.export(module, (IMAGE,)), cpu))
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    for number, ((name, mine), (_, wanted)) in enumerate(zip(ours, theirs, strict=True)):
        # The first is the input's quantize: ours converts the order of dimensions after it, in int8.
        same = mine[1:6] == wanted[1:6] if number == 0 else mine == wanted
        assert same, f"{number}: {name}"
    want = delegatekit.load(stock_file(torch.export.export(module, (IMAGE,)), cpu))["forward"](IMAGE)
    assert torch.equal(delegatekit.load(program.buffer)["forward"](IMAGE), want)


def test_nothing_is_left_in_float_where_stock_leaves_nothing() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    module = quantized(Products(), *inputs)
    program = delegatekit.lower(torch.export.export(module, inputs), backends=["cortexm"])
    ours, theirs = calls(program.buffer), calls(stock_file(torch.export.export(module, inputs)))
    assert {name for name, _ in theirs} <= {name for name, _ in ours}
    (method,) = delegatekit.report(program).methods
    assert not method.fallback
    assert torch.equal(delegatekit.load(program.buffer)["forward"](*inputs), module(*inputs))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 25, 10)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(F.max_pool2d(torch.relu(self.first(x)), 3).flatten(1))


def test_files_of_both_are_the_quantized_module() -> None:
    torch.manual_seed(0)
    module = quantized(Small(), IMAGE)
    program = delegatekit.lower(torch.export.export(module, (IMAGE,)), backends=["cortexm"])
    for data in (program.buffer, stock_file(torch.export.export(module, (IMAGE,)))):
        assert torch.equal(delegatekit.load(data)["forward"](IMAGE), module(IMAGE))
