"""Inputs in channels-last order: a file is right in the stock runtime for the order that it was exported with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from referee import StockProgram, check, same
from torch import nn

import delegatekit
from delegatekit.pte import read, schema

IMAGE = torch.randn(2, 3, 8, 6, generator=torch.Generator().manual_seed(0))
CHANNELS_LAST = IMAGE.to(memory_format=torch.channels_last)


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x * 2 - 1


def input_orders(buffer: bytes) -> list[list[int]]:
    plan = (read(buffer).program.execution_plan or [])[0]
    found: list[Any] = [(plan.values or [])[index].val for index in plan.inputs or ()]
    return [list(item.dim_order or ()) for item in found if isinstance(item, schema.Tensor)]


@pytest.mark.parametrize("backends", [[], ["xnnpack"]])
def test_a_channels_last_example_makes_a_file_for_channels_last_calls(backends: list[str]) -> None:
    other = torch.randn(2, 3, 8, 6).to(memory_format=torch.channels_last)
    program = check(nn.Conv2d(3, 4, 3), (CHANNELS_LAST,), [(CHANNELS_LAST,), (other,)], backends=backends)
    assert input_orders(program.buffer) == [[0, 2, 3, 1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool, torch.uint8])
def test_every_dtype_may_come_in_channels_last_order(dtype: torch.dtype) -> None:
    image = torch.arange(96).reshape(2, 3, 4, 4).to(dtype).to(memory_format=torch.channels_last)
    check(Twice() if dtype != torch.bool else nn.Flatten(), (image,), [(image,)])


def test_sizes_may_change() -> None:
    batch, height = torch.export.Dim("batch", max=4), torch.export.Dim("height", min=4, max=16)
    larger = torch.randn(4, 3, 15, 6).to(memory_format=torch.channels_last)
    shapes = ({0: batch, 2: height},)
    program = check(nn.Conv2d(3, 4, 3), (CHANNELS_LAST,), [(CHANNELS_LAST,), (larger,)], dynamic_shapes=shapes)
    assert input_orders(program.buffer) == [[0, 2, 3, 1]]


def test_the_engine_takes_every_order_whatever_the_example_was() -> None:
    convolution = nn.Conv2d(3, 4, 3).eval()
    for example in (IMAGE, CHANNELS_LAST):
        method = delegatekit.load(delegatekit.lower(convolution, (example,), backends=[]).buffer)["forward"]
        for given in (IMAGE, CHANNELS_LAST, IMAGE.transpose(2, 3).contiguous().transpose(2, 3)):
            same(method(given), convolution(IMAGE))


@pytest.mark.parametrize(
    "image", [IMAGE, IMAGE[:, :1].to(memory_format=torch.channels_last), IMAGE[..., ::2], IMAGE.transpose(1, 2)]
)
def test_other_orders_are_contiguous_in_the_file(image: torch.Tensor) -> None:
    """The stock runtime's binding takes contiguous and channels-last tensors and refuses all others."""
    buffer = delegatekit.lower(Twice(), (image,), backends=[]).buffer
    assert input_orders(buffer) == [[0, 1, 2, 3]]
    same(StockProgram(buffer).method()((image.contiguous(),)), Twice()(image))


def test_an_input_that_is_not_used_is_not_copied() -> None:
    class First(nn.Module):
        def forward(self, x: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:
            return x + 1

    program = check(First(), (torch.ones(2), CHANNELS_LAST), [(torch.ones(2), CHANNELS_LAST)])
    assert input_orders(program.buffer) == [[0], [0, 2, 3, 1]]
    assert b"_to_dim_order_copy" not in program.buffer


def test_a_lowered_module_takes_both_orders() -> None:
    convolution = nn.Conv2d(3, 4, 3).eval()
    module = delegatekit.to_backend(convolution, (CHANNELS_LAST,), backend="xnnpack")
    for given in (IMAGE, CHANNELS_LAST):
        same(module(given), convolution(IMAGE))
