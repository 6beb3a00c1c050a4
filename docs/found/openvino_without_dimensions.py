"""A delegate with an input without dimensions does not run."""

from __future__ import annotations

import torch
from tools import failure, openvino, run

PRODUCT = "ExecuTorch's OpenVINO delegate"
PACKAGE = "openvino"
VERSION = "2025.4.1"
AVOIDED = ("plugins/executorch/src/delegatekit_executorch_backends/support.py: _lacks_dimensions",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor(-1.0)
    return failure(run, openvino(torch.relu, x), x)
