"""Starts worker processes, says what they are asked to do, and tells how they ended."""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from typing import Any, Final

from delegatekit_api import LoweringError

from ..blob.installation import Installation, Missing, find_installation

WHERE: Final = "Qualcomm's compiler"
#: What the worker says about its own end begins with this.
MARK: Final = "delegatekit: "
#: Lines of what the library printed that an error shows.
_WORDS: Final = 6
_PREFIX: Final = re.compile(r"^\[(ERROR|WARNING)\] \[Qnn ExecuTorch\]:\s*(<[EW]>)?\s*")
#: What ExecuTorch's binding warns of each time.
_NOISE: Final = re.compile(r"Qnn API version .* is used")


def installation() -> Installation:
    """The library. Raises LoweringError, with what to do, where there is none."""
    found = find_installation()
    if isinstance(found, Missing):
        raise LoweringError(found.reason, where=WHERE, hint=found.hint)
    return found


def command(found: Installation, *task: str) -> list[str]:
    """The command of a worker process."""
    return [sys.executable, "-m", f"{__package__}.worker", str(found.folder), *task]


def request(options: bytes, **more: Any) -> dict[str, Any]:
    """A request with the options of the compiler."""
    return {"options": b64encode(options).decode(), **more}


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
