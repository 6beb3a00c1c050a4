"""What the integer lowering asks of the device that it lowers for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol


class Device(Protocol):
    """A device that computes TOSA's integer profile, or a part of it."""

    def __hash__(self) -> int:
        """Of its features: tables are made once for a device."""

    @property
    def narrow(self) -> bool:
        """True if it has the operators and sizes that every known device has, and no others."""

    def lacks(self, what: str) -> str | None:
        """The reason why it lacks a feature of `limits`, described in words; None if it has it."""


@dataclass(frozen=True)
class CompleteDevice:
    """A device that computes the whole profile.

    >>> COMPLETE.lacks("comparisons and booleans") is None
    True
    """

    narrow: bool = False

    def lacks(self, what: str) -> str | None:
        """Nothing."""
        return None


COMPLETE: Final = CompleteDevice()
