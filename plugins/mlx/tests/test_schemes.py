"""Quantized programs: the numbers of the module that stands for them, and integers that stay small in the file."""

from __future__ import annotations

import pytest
import torch

import delegatekit
from delegatekit_conformance import testkit
from delegatekit_mlx.blob.operators import operators
from delegatekit_toolkit.testing import float32_tolerance


def _compare(lowered: testkit.Lowered) -> None:
    """The module's own numbers: it computes in float32 only."""
    bound = float32_tolerance(256)
    torch.testing.assert_close(lowered.run(), lowered.eager(), rtol=bound, atol=bound)


def _kinds(lowered: testkit.Lowered) -> list[str]:
    return [item.name for item in operators(memoryview(lowered.delegate.blob))]


@pytest.mark.parametrize(("scheme", "most"), [("int8-weight-only", 1.2), ("int4-weight-only", 0.8)])
def test_weights_of_linear_layers_stay_integers(scheme: str, most: float) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).eval()
    x = torch.randn(3, 256)
    lowered = testkit.lower(delegatekit.quantize(net, [(x,)], backend="mlx", scheme=scheme), x, backend="mlx")
    _compare(lowered)
    assert _kinds(lowered).count("QuantizedMatmul") == 2 and "Dequantize" not in _kinds(lowered)
    # In bytes, for each weight: the integer, and its share of scale and bias.
    assert sum(map(len, lowered.delegate.named_data.values())) < most * (256 * 128 + 128 * 64)


@pytest.mark.parametrize("columns", [96, 40])
def test_rows_of_any_length(columns: int) -> None:
    """MLX has groups of 32, 64 and 128: other rows are unpacked in each call."""
    torch.manual_seed(0)
    net, x = torch.nn.Sequential(torch.nn.Linear(columns, 8)).eval(), torch.randn(3, columns)
    quantized = delegatekit.quantize(net, [(x,)], backend="mlx", scheme="int8-weight-only")
    lowered = testkit.lower(quantized, x, backend="mlx")
    _compare(lowered)
    assert ("QuantizedMatmul" in _kinds(lowered)) == (columns == 96)


def test_rows_that_are_looked_up_are_unpacked() -> None:
    import torch.ao.quantization.fx._decomposed  # registers the operators

    torch.manual_seed(0)
    table, scale = torch.randint(-127, 128, (50, 64)).to(torch.int8), torch.rand(50) * 0.01 + 0.001
    dequantize = torch.ops.quantized_decomposed.dequantize_per_channel

    def rows(at: torch.Tensor) -> torch.Tensor:
        zero = torch.zeros(50, dtype=torch.int64)
        return torch.nn.functional.embedding(at, dequantize(table, scale, zero, 0, -127, 127, torch.int8)) * 2

    lowered = testkit.lower(rows, torch.randint(0, 50, (2, 7)), backend="mlx")
    _compare(lowered)
    assert _kinds(lowered)[:4] == ["Take", "Take", "Take", "Dequantize"]


@pytest.mark.parametrize("axis", [0, 1])
def test_scales_along_either_axis_of_a_weight(axis: int) -> None:
    import torch.ao.quantization.fx._decomposed  # registers the operators

    torch.manual_seed(0)
    weight = torch.randint(-127, 128, (32, 32)).to(torch.int8)
    scale, zero = torch.rand(32) * 0.01 + 0.001, torch.randint(-5, 5, (32,))
    dequantize = torch.ops.quantized_decomposed.dequantize_per_channel

    def layer(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, dequantize(weight, scale, zero, axis, -127, 127, torch.int8))

    lowered = testkit.lower(layer, torch.randn(3, 32), backend="mlx")
    _compare(lowered)
    assert ("QuantizedMatmul" in _kinds(lowered)) == (axis == 0)
