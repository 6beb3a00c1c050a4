"""From an ExportedProgram to the edge program: functional, core ATen, value semantics, one sweep over the nodes."""

from __future__ import annotations

from .build import build_edge, rewritten_call
from .decompose import WHOLE, is_decomposable
from .export import Model, exported_programs
from .precompiled import called_module, is_precompiled
from .program import EdgeMethod, producer, shared_buffers
from .rules import RULES
from .rules.promotion import PROMOTING
from .size_nodes import SizeNodes
from .sizes import expression, is_size, is_size_node, lower_bound, upper_bound

__all__ = [
    "PROMOTING",
    "RULES",
    "WHOLE",
    "EdgeMethod",
    "Model",
    "SizeNodes",
    "build_edge",
    "called_module",
    "exported_programs",
    "expression",
    "is_decomposable",
    "is_precompiled",
    "is_size",
    "is_size_node",
    "lower_bound",
    "producer",
    "rewritten_call",
    "shared_buffers",
    "upper_bound",
]
