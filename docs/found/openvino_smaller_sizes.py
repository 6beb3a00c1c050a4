"""A delegate's output keeps the size of its upper bound when the inputs are smaller."""

from __future__ import annotations

import torch
from tools import openvino, run

PRODUCT = "ExecuTorch's OpenVINO delegate"
PACKAGE = "openvino"
VERSION = "2025.4.1"
AVOIDED = ("plugins/executorch/src/delegatekit_executorch_backends/targets.py: System.dynamic",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    sizes = [{0: torch.export.Dim("n", min=1, max=8)}]
    file = openvino(torch.relu, torch.ones(8, 2), dynamic_shapes=sizes)
    found = run(file, torch.ones(3, 2))
    return None if found.shape == (3, 2) else f"an output of {tuple(found.shape)}, should be (3, 2)"
