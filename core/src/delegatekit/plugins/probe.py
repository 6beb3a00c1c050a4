"""A process for one backend: `python -m delegatekit.plugins.probe NAME` imports it and asks its runtime.

Prints two lines of JSON as it goes, so that it is known how far it came: the `BackendInfo`, and the runtime's
`Availability` if the backend is usable. Whatever else is printed goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any


def main(name: str) -> None:
    """Answer for one backend."""
    from .discovery import get_backend, look_up

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a vendor's library prints there without Python

    def answer(fact: Any) -> None:
        print(json.dumps(asdict(fact)), file=answers, flush=True)

    info = look_up(name)
    answer(info)
    if info.usable:
        answer(get_backend(name).runtime_availability())


if __name__ == "__main__":
    main(sys.argv[1])
