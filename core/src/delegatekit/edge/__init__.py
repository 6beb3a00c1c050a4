"""From an ExportedProgram to the edge program: functional, core ATen, value semantics, one sweep over the nodes."""

from __future__ import annotations

from .build import build_edge, decompose_nodes
from .program import EdgeMethod, MutableBuffer

__all__ = ["EdgeMethod", "MutableBuffer", "build_edge", "decompose_nodes"]
