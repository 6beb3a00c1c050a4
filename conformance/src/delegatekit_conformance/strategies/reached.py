"""The operators of the edge dialect that examples contain, for `delegatekit operators`."""

from __future__ import annotations

from torch._ops import OpOverload

from ..recipe import find_target
from .registry import load_operators


def operators_in_examples() -> frozenset[str]:
    """The operators that have a strategy, and their decompositions where no backend keeps them whole."""
    from delegatekit_tools.dialect import rewritten_to

    found: set[str] = set()
    for name in load_operators():
        found.add(name)
        target = find_target(name)
        if isinstance(target, OpOverload):
            found.update(rewritten_to(target) or ())
    return frozenset(found)
