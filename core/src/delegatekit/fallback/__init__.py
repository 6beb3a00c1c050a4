"""The stock runtime's own operators: supported cases, wrong results, and replacements for those.

The main query is `refusal(node)`: the reason why the runtime cannot run a node, or None if it can. `decompose_nodes`
writes other operators in place of nodes that it refuses, and `kernel_of` names the kernel of one that it runs. For
updates of a buffer's rows, `in_place_refusal(node)` is the reason why the runtime cannot write them in place.
"""

from __future__ import annotations

from .kernels import OutVariant, kernel_of, out_variant, refusal, require_kernel
from .rewrite import Decomposed, decompose_nodes
from .rows import has_row_form, in_place_refusal, row_updates

__all__ = [
    "Decomposed",
    "OutVariant",
    "decompose_nodes",
    "has_row_form",
    "in_place_refusal",
    "kernel_of",
    "out_variant",
    "refusal",
    "require_kernel",
    "row_updates",
]
