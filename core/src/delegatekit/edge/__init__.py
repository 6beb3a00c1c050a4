"""From an ExportedProgram to the edge program: functional, core ATen, value semantics, one sweep over the nodes."""

from __future__ import annotations

from .build import build_edge
from .program import EdgeMethod, shared_buffers

__all__ = ["EdgeMethod", "build_edge", "shared_buffers"]
