"""torch.export gives an indexing whose last index is a tensor without dimensions the wrong shape.

The example's own result has two dimensions; the exported program says one, and everything after it is built on that.
"""

from __future__ import annotations

import torch
from tools import Module

PRODUCT = "PyTorch"
PACKAGE = "torch"
VERSION = "2.13.0"
AVOIDED = ("core/src/delegatekit/edge/rules/views.py: _check_index",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    x, rows, column = torch.ones(3, 4, 5), torch.tensor([0, 1]), torch.tensor(2)

    def function(x, rows, column):
        return torch.ops.aten.index.Tensor(x, [rows, column])

    exported = torch.export.export(Module(function), (x, rows, column), strict=False)
    (said,) = [node.meta["val"].shape for node in exported.graph.nodes if node.op == "call_function"]
    real = function(x, rows, column).shape
    return None if said == real else f"{tuple(said)}, should be {tuple(real)}"
