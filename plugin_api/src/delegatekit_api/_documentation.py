"""What a backend says for the pages of the documentation: its operators, and whatever else its users must know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class OperatorEntry:
    """One operator that a backend takes, as its users read about it."""

    #: The full name of an overload: "aten.add.Tensor".
    operator: str
    #: The conditions, in sentences, for each column of the table; "" where there are none.
    conditions: tuple[str, ...]
    #: Whether the backend asks the core not to decompose it.
    whole: bool = False
    #: Whether it is taken only together with an operator that is not a passenger; None if that depends on the call.
    passenger: bool | None = False


@dataclass(frozen=True)
class OperatorTable:
    """The operators that a backend takes. Raises ValueError if an entry has not one text for each column."""

    entries: tuple[OperatorEntry, ...]
    #: The titles of the columns of conditions: one for each family of devices if these differ in what they take.
    columns: tuple[str, ...] = ("conditions",)
    #: Conditions for every operator, a sentence each.
    common: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for entry in self.entries:
            if len(entry.conditions) != len(self.columns):
                raise ValueError(f"{entry.operator} has {len(entry.conditions)} texts for {len(self.columns)} columns")


@dataclass(frozen=True)
class BackendDocumentation:
    """What a backend's page has beside its description and its options, which the core knows already."""

    operators: OperatorTable | None = None
    #: Further sections: heading -> Markdown.
    sections: Mapping[str, str] = field(default_factory=dict)
