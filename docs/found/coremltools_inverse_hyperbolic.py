"""The converter takes asinh and acosh, and then calls a function that its builder does not have."""

from __future__ import annotations

import torch
from tools import mil

PRODUCT = "coremltools"
PACKAGE = "coremltools"
VERSION = "9.0"
AVOIDED = ("toolkit/src/delegatekit_toolkit/composed/functions.py: asinh",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    try:
        mil(torch.asinh, torch.ones(3))
    except AttributeError as error:
        return str(error)
    return None
