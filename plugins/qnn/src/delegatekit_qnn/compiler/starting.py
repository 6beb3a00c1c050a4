"""Commands and requests of worker processes."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from typing import Any, Final

from delegatekit_api import LoweringError

from ..blob.installation import LIBRARIES, Installation, Missing, find_installation

WHERE: Final = "Qualcomm's compiler"


def installation() -> Installation:
    """The library. Raises LoweringError, with a remedy, if there is none."""
    found = find_installation()
    if isinstance(found, Missing):
        raise LoweringError(found.reason, where=WHERE, hint=found.hint)
    return found


def command(found: Installation, *task: str) -> list[str]:
    """The command of a worker process."""
    libraries = os.pathsep.join(str(found.folder / name) for name in LIBRARIES)
    return [sys.executable, "-m", f"{__package__}.worker", libraries, *task]


def request(options: bytes, **more: Any) -> dict[str, Any]:
    """A request with the options of the compiler."""
    return {"options": b64encode(options).decode(), **more}
