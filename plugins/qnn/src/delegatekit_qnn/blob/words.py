"""The library's output, and the relevant lines of it."""

from __future__ import annotations

import re
from typing import Final

#: Prefix of the worker's message about its own end.
MARK: Final = "delegatekit: "
#: The maximum number of the library's lines that an error shows.
_WORDS: Final = 6
_PREFIX: Final = re.compile(r"^\[(ERROR|WARNING)\] \[Qnn ExecuTorch\]:\s*(<[EW]>)?\s*")
#: The repeated warning of ExecuTorch's binding.
_NOISE: Final = re.compile(r"Qnn API version .* is used")


def own_words(text: str) -> str:
    """The worker's message about its own end in the output; "" if there is none."""
    found = [line.removeprefix(MARK) for line in text.splitlines() if line.startswith(MARK)]
    return found[-1] if found else ""


def complaints(text: str) -> list[str]:
    """The library's complaints, without its prefixes; the last lines of the output if there are none."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(MARK)]
    marked = [_PREFIX.sub("", line).strip() for line in lines if _PREFIX.match(line)]
    found = [line for line in marked if line and not _NOISE.match(line)]
    return (found or lines)[-_WORDS:]


def first_complaint(text: str) -> str:
    """The library's first complaint; "" if there is none."""
    found = [_PREFIX.sub("", line).strip() for line in text.splitlines() if _PREFIX.match(line)]
    return next((line for line in found if line and not _NOISE.match(line)), "")
