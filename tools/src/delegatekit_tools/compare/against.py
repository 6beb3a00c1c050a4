"""Comparison of two lowered programs: the first operator whose results differ by more than both bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .result import Divergence, Operator
from .sides import Side, Tried

#: A function that describes the divergence of a side.
Tell = Callable[[Side, Tried], Divergence]


def first_difference(
    one: Side, other: Side, found: Divergence | None, tell: Tell
) -> tuple[tuple[Operator, ...], Divergence | None, tuple[str, ...]]:
    """The operators of both sides, the first that exceeds its bound on either, and remarks.

    Both sides get the same referee values, and results within their bounds on both cannot be further apart than
    both bounds together. So the first operator at which they differ is the first that is wrong on either; graphs that
    backends keep different operators whole in are aligned by the exported nodes that the operators come from.
    """
    operators = tuple(sorted((item.operator for side in (one, other) for item in side.tried), key=_place))
    operators = tuple(replace(item, position=index) for index, item in enumerate(operators))
    wrong = [(side, side.wrong) for side in (one, other)]
    known = [(side, tried) for side, tried in wrong if tried is not None]
    remarks = tuple(
        f"{'+'.join(side.program.backends)} is right in every operator" for side, tried in wrong if tried is None
    )
    if not known:
        return operators, found, remarks
    side, tried = min(known, key=lambda pair: _place(pair[1].operator))
    first = found if side is one and found is not None else tell(side, tried)
    return operators, first, remarks


def _place(item: Operator) -> tuple[int, int]:
    return (item.handle if item.handle is not None else 1 << 60, item.position)
