"""Programs that stock ExecuTorch lowered to its Vulkan delegate: our runtime must run them, too."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import pytest
import torch


def stock_buffer(model: torch.nn.Module, inputs: tuple[Any, ...], dynamic_shapes: Any = None, **options: Any) -> bytes:
    """The `.pte` of stock's partitioner and preprocess, with these compile options."""
    pytest.importorskip("executorch.backends.vulkan", reason="executorch is not installed")
    level = logging.getLogger().level
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import to_edge_transform_and_lower

    try:
        with torch.no_grad(), contextlib.redirect_stdout(None):
            # PyTorch's quantization returns a graph, which stays in the mode that it was exported in.
            model = model if isinstance(model, torch.fx.GraphModule) else model.eval()
            exported = torch.export.export(model, inputs, dynamic_shapes=dynamic_shapes, strict=False)
            edge = to_edge_transform_and_lower(exported, partitioner=[VulkanPartitioner(options)])
            buffer: bytes = edge.to_executorch().buffer
    finally:
        logging.getLogger().setLevel(level)  # importing the partitioner changes it
    return buffer
