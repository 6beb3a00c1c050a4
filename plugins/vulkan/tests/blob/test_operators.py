"""The calls of a blob in readable form: stock's own reader finds the same calls, in blobs of ours and of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit.pte import read
from delegatekit_api.blobs import BlobOperator
from delegatekit_conformance.testkit import lower
from delegatekit_vulkan.blob.operators import operators

from ..stock import stock_buffer


class Pieces(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = (x + y) * 0.5 - x / (y.abs() + 1)
        return torch.cat([z[:, :2], z.flip(1)[:, 1:]], 1), z.exp().mean(-1, keepdim=True)


class Average(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.copy_(self.mean * 0.75 + x * 0.25)
        return x - self.mean


PAIR = (torch.randn(2, 3, 4), torch.randn(2, 3, 4))


def check(told: list[BlobOperator], blob: Any) -> None:
    """Check that the calls, and the results that they read, are those that stock's reader finds."""
    module = pytest.importorskip("executorch.backends.vulkan.serialization.vulkan_graph_serialize")
    theirs = module.flatbuffer_to_vk_graph(module.extract_vk_flatbuffer(bytes(blob)))
    assert [item.name for item in told] == [call.name for call in theirs.chain]
    made: dict[int, str] = {}
    for item, call in zip(told, theirs.chain, strict=True):
        values = [(number, theirs.values[number].value) for number in call.args[:-1]]
        listed = [value.items if type(value).__name__ == "ValueList" else [number] for number, value in values]
        wanted = [made[number] for numbers in listed for number in numbers if number in made]
        assert [name for name in item.reads if name in made.values()] == list(dict.fromkeys(wanted))
        made[call.args[-1]] = item.makes[0]
    assert all(made[number] for number in theirs.output_ids)


def test_our_calls_are_told() -> None:
    delegate = lower(Pieces(), *PAIR, backend="vulkan", whole=False).delegate
    check(operators(delegate.blob), delegate.blob)


def test_stocks_calls_are_told() -> None:
    buffer = stock_buffer(Pieces(), PAIR)
    (table,) = read(buffer).program.execution_plan[0].delegates  # type: ignore[index, misc]
    (delegate,) = delegatekit.inspect(buffer, operators=True).methods[0].delegates
    assert delegate.insides is not None and not delegate.insides.unknown
    check(list(delegate.insides.operators), read(buffer).delegate_blob(table))


def test_what_overwrites_a_state_makes_a_value_of_its_own() -> None:
    told = operators(lower(Average(), torch.randn(2, 3), backend="vulkan", whole=False).delegate.blob)
    (written,) = (item for item in told if ", written by" in item.makes[0])
    (loaded,) = (item for item in told if item.makes == (written.makes[0].partition(",")[0],))
    assert loaded.name == "et_vk.prepack.default" and told.index(written) > told.index(loaded)
    assert any(loaded.makes[0] in item.reads for item in told)
