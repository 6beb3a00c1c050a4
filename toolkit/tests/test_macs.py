"""Multiply-accumulates of calls: against PyTorch's own counter of floating point operations, which are two each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils.flop_counter import FlopCounterMode

from delegatekit_api import Call
from delegatekit_toolkit.macs import macs
from delegatekit_toolkit.testing import view_of

F = nn.functional


def counted(model: Any, *inputs: Any, dynamic_shapes: Any = None) -> int:
    view = view_of(model, *inputs, dynamic_shapes=dynamic_shapes)
    return sum(macs(Call(node, view)) for node in view.graph.nodes if node.op == "call_function")


def by_torch(model: Any, *inputs: Any) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*inputs)
    flops = counter.get_total_flops()
    assert flops % 2 == 0 and flops
    return flops // 2


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(sizes)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (nn.Linear(5, 7), [ones(2, 3, 5)]),
        (torch.mm, [ones(2, 3), ones(3, 4)]),
        (torch.bmm, [ones(2, 3, 5), ones(2, 5, 4)]),
        (torch.matmul, [ones(2, 6, 3, 5), ones(6, 5, 4)]),
        (torch.addmm, [ones(4), ones(2, 3), ones(3, 4)]),
        (torch.baddbmm, [ones(2, 3, 4), ones(2, 3, 5), ones(2, 5, 4)]),
        (nn.Conv1d(4, 6, 3, padding=1), [ones(2, 4, 9)]),
        (nn.Conv2d(4, 6, 3, stride=2, groups=2, dilation=2), [ones(2, 4, 11, 13)]),
        (nn.Conv2d(4, 4, (3, 5), groups=4, bias=False), [ones(1, 4, 8, 8)]),
        (nn.Conv3d(2, 3, 2), [ones(1, 2, 4, 5, 6)]),
        (nn.ConvTranspose1d(4, 6, 3), [ones(2, 4, 9)]),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, output_padding=1), [ones(2, 4, 5, 7)]),
    ],
)
def test_products_count_as_in_pytorch(model: Any, inputs: list[torch.Tensor]) -> None:
    assert counted(model, *inputs) == by_torch(model, *inputs)


def test_attention_counts_both_of_its_products() -> None:
    query, key, value = ones(2, 4, 5, 8), ones(2, 4, 7, 8), ones(2, 4, 7, 6)

    def parts(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return (query @ key.transpose(-1, -2)).softmax(-1) @ value

    assert counted(F.scaled_dot_product_attention, query, key, value) == by_torch(parts, query, key, value)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("more", [{}, {"num_layers": 2, "bidirectional": True}])
def test_recurrent_networks_count_each_matrix_once_a_step(kind: Any, more: dict[str, Any]) -> None:
    network = kind(5, 6, batch_first=True, **more).eval()
    x = ones(2, 7, 5)
    matrices = sum(weight.numel() for weight in network.parameters() if weight.dim() == 2)
    assert counted(network, x) == 2 * 7 * matrices
    # PyTorch's counter sees the products of layers that it computes step by step.
    cell = {nn.LSTM: nn.LSTMCell, nn.GRU: nn.GRUCell, nn.RNN: nn.RNNCell}[kind](5, 6)
    assert counted(cell, ones(2, 5)) == by_torch(cell, ones(2, 5))


def test_vectors_count() -> None:
    assert counted(torch.mv, ones(3, 5), ones(5)) == 15
    assert counted(torch.addmv, ones(3), ones(3, 5), ones(5)) == 15
    assert counted(torch.dot, ones(5), ones(5)) == 5
    assert counted(torch.addbmm, ones(3, 4), ones(2, 3, 5), ones(2, 5, 4)) == by_torch(
        torch.bmm, ones(2, 3, 5), ones(2, 5, 4)
    )


@pytest.mark.parametrize("model", [torch.relu, nn.LayerNorm(4), lambda x: x * x + x.sum(), lambda x: x.reshape(-1)])
def test_what_is_no_sum_of_products_counts_nothing(model: Any) -> None:
    assert counted(model, ones(3, 4)) == 0


def test_sizes_that_change_count_at_their_upper_bound() -> None:
    layer = nn.Linear(5, 7)
    assert counted(layer, ones(3, 5), dynamic_shapes=({0: Dim("rows", max=16)},)) == by_torch(layer, ones(16, 5))


def test_a_size_without_a_bound_counts_as_in_the_example() -> None:
    layer = nn.Linear(5, 7)
    assert counted(layer, ones(3, 5), dynamic_shapes=({0: Dim("rows")},)) == by_torch(layer, ones(3, 5))
