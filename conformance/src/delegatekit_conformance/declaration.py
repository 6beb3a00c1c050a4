"""Declarations: claims of a backend that loosen a check, as data, with the measurements of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from delegatekit_toolkit.json_text import AnyFloat

#: Start of the result of a case whose value of an option acts as the default in everything tried.
ACTS_AS = "acts as the default, "


@dataclass(frozen=True)
class Measured:
    """The measurements of a declaration in some examples."""

    #: The declaration's key.
    key: str
    #: In the declaration's own unit; the largest of the examples.
    value: AnyFloat
    #: Number of examples measured.
    examples: int = 1


@dataclass(frozen=True)
class Declaration:
    """One claim of a backend that loosens what the suite requires of it."""

    #: Names it within a run: "relative_error:int8".
    key: str
    #: "relative_error = 0.00195".
    what: str
    #: "scheme 8a8w", "rows of aten.exp.default".
    where: str
    #: Results that it accepts and that would be faults without it.
    loosens: str
    #: The most that may be declared, in words, with the reason. Empty where there is no figure.
    limit: str = ""
    #: How the declaration exceeds its limit. Empty if it does not.
    breaks: str = ""
    #: The declared number, in the unit of the measurement; more is looser. None where there is none.
    value: AnyFloat | None = None
    #: The measurements of the run, in words.
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
    """The maximum over several examples, by key.

    >>> together([Measured("a", 1.0), Measured("a", 0.5, 3)])["a"]
    Measured(key='a', value=1.0, examples=4)
    """
    found: dict[str, Measured] = {}
    for item in measured:
        known = found.get(item.key, Measured(item.key, item.value, 0))
        found[item.key] = Measured(item.key, max(known.value, item.value), known.examples + item.examples)
    return found
