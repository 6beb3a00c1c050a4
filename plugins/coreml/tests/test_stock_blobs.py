"""Blobs of stock ExecuTorch's partitioner run here, and agree with eager mode."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit


def stock_buffer(model: nn.Module, inputs: tuple[Any, ...], target: str) -> bytes:
    """The `.pte` of stock's partitioner and preprocess."""
    pytest.importorskip("executorch.backends.apple.coreml.partition", reason="executorch is not installed")
    level = logging.getLogger().level
    import coremltools
    from executorch.backends.apple.coreml.compiler import CoreMLBackend
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner
    from executorch.exir import to_edge_transform_and_lower

    try:
        with torch.no_grad(), contextlib.redirect_stdout(None):
            specs = CoreMLBackend.generate_compile_specs(minimum_deployment_target=coremltools.target[target])
            exported = torch.export.export(model.eval(), inputs, strict=False)
            edge = to_edge_transform_and_lower(exported, partitioner=[CoreMLPartitioner(compile_specs=specs)])
            buffer: bytes = edge.to_executorch().buffer
    finally:
        logging.getLogger().setLevel(level)
    return buffer


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.parts, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.parts(self.norm(x)).reshape(x.shape[0], x.shape[1], 3, 2, 8).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        result: torch.Tensor = x + self.out(found.transpose(1, 2).reshape(x.shape))
        return result


IMAGES = nn.Sequential(
    nn.Conv2d(3, 8, 3, 2, 1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.Conv2d(8, 8, 3, padding=1, groups=8),
    nn.SiLU(),
    nn.MaxPool2d(2, 2),
    nn.Flatten(),
    nn.Linear(128, 10),
    nn.Softmax(-1),
)


@pytest.mark.parametrize("target", ["iOS15", "iOS17", "iOS18"])
@pytest.mark.parametrize(
    ("model", "shape"), [(IMAGES, (1, 3, 16, 16)), (Attention(), (1, 5, 16))], ids=["images", "attention"]
)
def test_stock_programs_run(model: nn.Module, shape: tuple[int, ...], target: str) -> None:
    inputs = (torch.randn(shape, generator=torch.Generator().manual_seed(0)),)
    buffer = stock_buffer(model, inputs, target)
    (delegate,) = delegatekit.inspect(buffer).methods[0].delegates
    assert delegate.id == "CoreMLBackend"
    with torch.no_grad():
        wanted = model(*inputs)
    got = delegatekit.load(buffer)["forward"](*inputs)
    # Stock computes in float16.
    assert float((got - wanted).abs().max() / wanted.abs().max()) < 5e-3
