"""From an ExportedProgram to the edge program: functional, core ATen, value semantics, one sweep over the nodes."""

from __future__ import annotations

from .build import build_edge
from .dialect import GROUPS, DialectOperator, absence, dialect_operators
from .digest import program_digest, values_digest
from .export import Model, exported_programs
from .precompiled import called_module, is_precompiled
from .program import EdgeMethod, producer, shared_buffers
from .size_nodes import SizeNodes
from .sizes import expression, is_size, is_size_node, lower_bound, upper_bound

__all__ = [
    "GROUPS",
    "DialectOperator",
    "EdgeMethod",
    "Model",
    "SizeNodes",
    "absence",
    "build_edge",
    "called_module",
    "dialect_operators",
    "exported_programs",
    "expression",
    "is_precompiled",
    "is_size",
    "is_size_node",
    "lower_bound",
    "producer",
    "program_digest",
    "shared_buffers",
    "upper_bound",
    "values_digest",
]
