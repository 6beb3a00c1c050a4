"""Reading fx nodes, for code that works on graphs: operator, arguments, source location.

Backends read a `Call` instead.
"""

from __future__ import annotations

from ._nodes import (
    SourceFrame,
    argument,
    describe_node,
    dynamic_operand,
    is_dynamic,
    operator_name,
    source_frames,
    source_line,
)

__all__ = [
    "SourceFrame",
    "argument",
    "describe_node",
    "dynamic_operand",
    "is_dynamic",
    "operator_name",
    "source_frames",
    "source_line",
]
