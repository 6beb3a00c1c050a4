"""Shared helpers of tests of quantized operators: constants as ExecuTorch's lowering stores them, and one call."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from delegatekit_vulkan.ir.graph import Tensor

from .test_stock_calls import declared, run


def definitions():
    """ExecuTorch's own definitions of its operators, `torch.ops.et_vk`."""
    pytest.importorskip("executorch.backends.vulkan.custom_ops_lib", reason="executorch is not installed")
    return torch.ops.et_vk


def constant(value: torch.Tensor) -> Tensor:
    found = declared(value)
    found.data = value
    return found


def integers(*shape: int, low: int = -128, high: int = 127) -> torch.Tensor:
    return torch.randint(low, high + 1, shape, dtype=torch.int8)


def filled(value: torch.Tensor, multiple: int) -> torch.Tensor:
    """Padded with zeros at the end of the last axis."""
    return F.pad(value, (0, -value.shape[-1] % multiple)).contiguous()


def packed_by_groups(weight: torch.Tensor) -> torch.Tensor:
    """Weights of 4 bits, two in a byte."""
    shifted = (filled(weight, 8).int() + 8).to(torch.uint8)
    return shifted[:, 1::2] << 4 | shifted[:, ::2]


def one(operator: str, make, *inputs: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The only result of a call; `make` returns its arguments for the graph's inputs."""
    return run(operator, make, *inputs, like=(like,))[0]


def check_steps(got: torch.Tensor, wanted: torch.Tensor, scale: float, zero_point: int) -> None:
    """Each integer is the nearest to a number computed in double precision, up to float32's own errors."""
    steps = (wanted / scale + zero_point).clamp(-128, 127)
    assert (got.double() - steps).abs().max() <= 0.5 + 1e-4
