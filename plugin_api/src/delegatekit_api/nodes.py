"""What an fx node says, for those who work on graphs: its operator, its arguments, its place in the source.

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
