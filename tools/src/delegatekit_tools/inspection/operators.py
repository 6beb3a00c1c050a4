"""The operators inside a delegate as text."""

from __future__ import annotations

from collections.abc import Iterator

from .insides import Insides


def operator_lines(found: Insides, *, narrow: bool = False) -> Iterator[str]:
    """A line per operator, "0 Conv2d -> value 3 (kernel 3x3)"; if `narrow`, facts have their own. Or the reason."""
    if found.unknown:
        yield f"operators not known: {found.unknown}"
        return
    width = len(str(len(found.operators) - 1))
    for number, operator in enumerate(found.operators):
        line = f"{number:>{width}} {operator.name} -> {', '.join(operator.makes) or 'nothing'}"
        facts = [f"{key} {text}" for key, text in operator.facts.items()]
        yield line if narrow or not facts else f"{line} ({', '.join(facts)})"
        if narrow:
            yield from (f"{'':>{width}}   {fact}" for fact in facts)
