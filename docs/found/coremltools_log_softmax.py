"""log_softmax is converted to the logarithm of a softmax: -200 becomes the logarithm of a number that is 0."""

from __future__ import annotations

import torch
from tools import mil

PRODUCT = "coremltools"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("plugins/coreml/src/delegatekit_coreml/operators/reduction.py: _log_softmax",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    operations = mil(lambda x: torch.log_softmax(x, -1), torch.ones(3))
    if [operation.op_type for operation in operations] != ["softmax", "log"]:
        return None
    least = torch.log(torch.softmax(torch.tensor([0.0, -200.0]), -1) + float(operations[1].inputs["epsilon"].val))[1]
    return f"log(softmax(x) + {operations[1].inputs['epsilon'].val}): {float(least):.1f}, should be -200.0"
