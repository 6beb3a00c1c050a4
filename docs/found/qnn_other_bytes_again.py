"""A process that has compiled before writes different bytes for the same graph.

The context contains numbers that depend on the process. So each context is compiled in a process of its own.
"""

from __future__ import annotations

from tools import qnn_context

PRODUCT = "Qualcomm's QNN library"
PACKAGE = "onnxruntime-qnn"
VERSION = "2.5.0"
AVOIDED = ("plugins/qnn/src/delegatekit_qnn/compiler/process.py: compile_graphs",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    first, second = (qnn_context("Relu", (1, 4)) for _ in range(2))
    count = sum(one != other for one, other in zip(first, second, strict=False))
    return None if first == second else f"{count} of {len(first)} bytes differ"
