"""The stock runtime's own operators: what they can run, what they get wrong, and other spellings for that.

`kernel_of` answers whether the runtime runs a node, `kernel_limit` says why not.
"""

from __future__ import annotations

from .in_place import IN_PLACE
from .kernels import OutVariant, kernel_limit, kernel_of, out_variant, require_kernel
from .names import runtime_operators

__all__ = [
    "IN_PLACE",
    "OutVariant",
    "kernel_limit",
    "kernel_of",
    "out_variant",
    "require_kernel",
    "runtime_operators",
]
