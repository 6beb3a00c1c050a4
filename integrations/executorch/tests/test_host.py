"""Our delegates in stock ExecuTorch's runtime: what they compute, in each of its ways to run a file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import delegatekit

RunHosted = Callable[..., list[list[torch.Tensor]]]


class Mixed(torch.nn.Module):
    """Two results of different shapes, with a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.linspace(-1, 1, 4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x * y + self.weight
        return z, z * z + y


@pytest.mark.parametrize("backend", ["reference", "demo", "vulkan", "coreml"])
def test_a_file_runs_in_stocks_runtime(backend: str, demo: str, run_hosted: RunHosted) -> None:
    model, calls = Mixed().eval(), [(torch.randn(3, 4), torch.randn(3, 4)) for _ in range(3)]
    program = delegatekit.lower(model, calls[0], backends=[backend])
    assert len(program.methods["forward"].delegates) == 1
    tolerance = 1e-2 if backend == "coreml" else 1e-6  # Core ML computes in float16
    for call, results in zip(calls, run_hosted(program.buffer, calls), strict=True):
        torch.testing.assert_close(tuple(results), model(*call), rtol=tolerance, atol=tolerance)
