"""A backend's contribution to the documentation pages: its operators, and whatever else its users must know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class OperatorEntry:
    """One operator that a backend supports, as documented for its users."""

    #: The full name of an overload: "aten.add.Tensor".
    operator: str
    #: The conditions, in sentences, for each column of the table; "" where there are none.
    conditions: tuple[str, ...]
    #: True if the backend asks the core not to decompose it.
    whole: bool = False
    #: True if it is taken only together with an operator that is not a passenger; None if that depends on the call.
    passenger: bool | None = False


@dataclass(frozen=True)
class OperatorTable:
    """The operators that a backend supports. Raises ValueError for an entry without one text per column."""

    entries: tuple[OperatorEntry, ...]
    #: The titles of the columns of conditions: one for each family of devices if their support differs.
    columns: tuple[str, ...] = ("conditions",)
    #: Conditions for every operator, a sentence each.
    common: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for entry in self.entries:
            if len(entry.conditions) != len(self.columns):
                raise ValueError(f"{entry.operator} has {len(entry.conditions)} texts for {len(self.columns)} columns")


@dataclass(frozen=True)
class BackendDocumentation:
    """The sections of a backend's page besides its description and its options, which the core knows already."""

    operators: OperatorTable | None = None
    #: Further sections: heading -> Markdown.
    sections: Mapping[str, str] = field(default_factory=dict)
