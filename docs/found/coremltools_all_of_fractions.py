"""all() is converted with a cast to integers: all(0.5) is False."""

from __future__ import annotations

import torch
from tools import mil

PRODUCT = "coremltools"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("plugins/coreml/src/delegatekit_coreml/operators/reduction.py: _any",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    kinds = []
    for item in mil(lambda x: torch.all(x, 0), torch.ones(3)):
        kinds.append((item.op_type, getattr(item.inputs.get("dtype"), "val", "")))
    return f"{kinds[:2]}: 0.5 counts as 0" if kinds[0] == ("cast", "int32") else None
