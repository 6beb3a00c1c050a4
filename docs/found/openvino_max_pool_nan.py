"""Max pools leave NaNs out."""

from __future__ import annotations

import torch
from tools import openvino, run

PRODUCT = "ExecuTorch's OpenVINO delegate"
PACKAGE = "openvino"
VERSION = "2025.4.1"
AVOIDED = ()


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([[1.0, float("nan"), 0.5]])
    found = run(openvino(lambda x: torch.nn.functional.max_pool1d(x, 3), x), x)
    return None if found.isnan().all() else f"{found.tolist()}, should be NaN"
