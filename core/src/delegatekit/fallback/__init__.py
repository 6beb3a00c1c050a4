"""The stock runtime's own operators: what they can run, what they get wrong, and other spellings for that.

The question to ask is `refusal(node)`: why the runtime cannot run a node, or None if it can. `decompose_nodes` writes
other operators in place of nodes that it refuses, and `kernel_of` names the kernel of one that it runs.
"""

from __future__ import annotations

from .in_place import IN_PLACE
from .kernels import OutVariant, kernel_of, out_variant, refusal, require_kernel
from .names import runtime_operators
from .rewrite import Decomposed, decompose_nodes

__all__ = [
    "IN_PLACE",
    "Decomposed",
    "OutVariant",
    "decompose_nodes",
    "kernel_of",
    "out_variant",
    "refusal",
    "require_kernel",
    "runtime_operators",
]
