"""Declarations: what a backend says of itself that loosens a check, as data, and what a run measured of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from delegatekit_toolkit.json_text import AnyFloat

#: How the result of a case begins whose value of an option acts as the default in all that was tried.
ACTS_AS = "acts as the default, "


@dataclass(frozen=True)
class Measured:
    """What some examples showed of a declaration."""

    #: The declaration's key.
    key: str
    #: In the declaration's own unit; the largest of the examples.
    value: AnyFloat
    #: How many examples are in it.
    examples: int = 1


@dataclass(frozen=True)
class Declaration:
    """One thing that a backend declares and that loosens what the suite asks of it."""

    #: Names it within a run: "relative_error:int8".
    key: str
    #: "relative_error = 0.00195".
    what: str
    #: "scheme 8a8w", "rows of aten.exp.default".
    where: str
    #: What passes by it that would be a fault without.
    loosens: str
    #: How much may be declared at most, in words, with the reason. Empty where there is no figure.
    limit: str = ""
    #: How the declaration is beyond its limit. Empty if it is not.
    breaks: str = ""
    #: The declared number, in the unit of what is measured; more is looser. None where there is none.
    value: AnyFloat | None = None
    #: What the run showed of it, in words.
    measured: str = ""
    #: All rows of the support table that it is about; none where it is not about rows.
    rows: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return asdict(self)

    def shown(self, measured: str) -> Declaration:
        """The declaration with what was measured."""
        return replace(self, measured=measured)


def together(measured: Iterable[Measured]) -> dict[str, Measured]:
    """What several examples measured, by key: the largest value of all examples.

    >>> together([Measured("a", 1.0), Measured("a", 0.5, 3)])["a"]
    Measured(key='a', value=1.0, examples=4)
    """
    found: dict[str, Measured] = {}
    for item in measured:
        known = found.get(item.key, Measured(item.key, item.value, 0))
        found[item.key] = Measured(item.key, max(known.value, item.value), known.examples + item.examples)
    return found
