"""The partitioner takes a max pool whose kernel or stride is one number for both dimensions, and the compiler fails."""

from __future__ import annotations

import torch
from tools import failure, openvino

PRODUCT = "ExecuTorch's OpenVINO delegate"
PACKAGE = "openvino"
VERSION = "2025.4.1"
AVOIDED = ()


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    pool = torch.ops.aten.max_pool2d_with_indices.default
    return failure(openvino, lambda x: pool(x, [2, 2], [1])[0], torch.ones(1, 1, 4, 4))
