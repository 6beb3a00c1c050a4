"""The partitioner takes tensors of int16, and the compiler fails."""

from __future__ import annotations

import torch
from tools import failure, openvino

PRODUCT = "ExecuTorch's OpenVINO delegate"
PACKAGE = "openvino"
VERSION = "2025.4.1"
AVOIDED = ()


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    return failure(openvino, lambda x: x + x, torch.ones(3, dtype=torch.int16))
