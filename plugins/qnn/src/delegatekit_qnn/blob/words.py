"""What the library prints, and which lines of it are worth reading."""

from __future__ import annotations

import re
from typing import Final

#: What the worker says about its own end begins with this.
MARK: Final = "delegatekit: "
#: Lines of what the library printed that an error shows.
_WORDS: Final = 6
_PREFIX: Final = re.compile(r"^\[(ERROR|WARNING)\] \[Qnn ExecuTorch\]:\s*(<[EW]>)?\s*")
#: What ExecuTorch's binding warns of each time.
_NOISE: Final = re.compile(r"Qnn API version .* is used")


def own_words(text: str) -> str:
    """What the worker said about its own end, among what was printed; "" if nothing."""
    found = [line.removeprefix(MARK) for line in text.splitlines() if line.startswith(MARK)]
    return found[-1] if found else ""


def complaints(text: str) -> list[str]:
    """The library's complaints, without its marks; the last lines that were printed where there are none."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(MARK)]
    marked = [_PREFIX.sub("", line).strip() for line in lines if _PREFIX.match(line)]
    found = [line for line in marked if line and not _NOISE.match(line)]
    return (found or lines)[-_WORDS:]


def first_complaint(text: str) -> str:
    """The library's first complaint; "" if there is none."""
    found = [_PREFIX.sub("", line).strip() for line in text.splitlines() if _PREFIX.match(line)]
    return next((line for line in found if line and not _NOISE.match(line)), "")
