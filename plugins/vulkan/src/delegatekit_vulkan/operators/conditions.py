"""Conditions that rows of several families share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.constraints import dtypes
from delegatekit_toolkit.sizes import dynamic_count
from delegatekit_toolkit.support import Constraint
from delegatekit_toolkit.symbols import shape_of

from ..targets import MOST_ROUNDS, rounds

#: What products, reductions and norms compute in.
FLOATS: Final = dtypes("float32", "float16")
#: Steps from one window to the next, and within one: a few of them beyond an input still fit 32 bits.
_FARTHEST: Final = 1 << 24


def few_changing(name: str, where: Callable[[Call], bool], words: str) -> Constraint:
    """A constraint: if `where` holds, the named tensor is viewed in another shape, and one size at most changes."""

    def check(call: Call) -> str | None:
        operand = call[name]
        if not isinstance(operand, Operand) or dynamic_count(shape_of(operand)) < 2 or not where(call):
            return None
        return f"{name} {operand.shape} has several sizes that change, and {words}: it would have to be reshaped"

    check.__doc__ = f"At most one size of {name} changes where {words}."
    return check


def short_loops(*loops: int) -> str | None:
    """The reason why nested loops, the outermost first, have too many rounds for one result; None if they have not."""
    count = rounds(*loops)
    return (
        f"{count} terms of one result: {MOST_ROUNDS} are the most that all drivers compute"
        if count > MOST_ROUNDS
        else None
    )


def far_windows(*steps: int) -> str | None:
    """The reason why windows with these steps and lengths reach too far; None if they do not."""
    most = max(steps)
    return (
        f"windows that step or reach {most} elements: positions are computed in 32 bits" if most >= _FARTHEST else None
    )
