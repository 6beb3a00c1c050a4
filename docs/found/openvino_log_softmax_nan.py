"""log_softmax of a row with a NaN or an infinity has it in one place only."""

from __future__ import annotations

import torch
from tools import openvino, run

PRODUCT = "ExecuTorch's OpenVINO delegate"
PACKAGE = "openvino"
VERSION = "2025.4.1"
AVOIDED = ()


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x = torch.tensor([1.0, float("inf"), 0.5])
    found = run(openvino(lambda x: torch.log_softmax(x, 0), x), x)
    return None if found.isnan().all() else f"{found.tolist()}, should be NaN everywhere"
