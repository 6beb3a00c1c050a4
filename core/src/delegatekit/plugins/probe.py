"""The probe process, which may crash: imports one plugin and, if asked to, a backend's compiler and runtime.

    python -m delegatekit.plugins.probe import GROUP NAME MODULE     import it; a backend also describes itself
    python -m delegatekit.plugins.probe ask NAME...                  the same for installed backends, and both

Prints a line of JSON after each step, which shows how far it came: `null` for an import that was survived,
whatever it raised; a backend's name with its `BackendInfo` and, if it is usable, with the `Availability` of its
compiler and of its runtime. All other output goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any


def main(step: str, *arguments: str) -> None:
    """Do one step; ends the process, with everything that the plugin has started in it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a vendor's library prints there, bypassing Python

    def answer(fact: Any) -> None:
        print(json.dumps(fact), file=answers, flush=True)

    steps: dict[str, Callable[..., None]] = {"import": _import, "ask": _ask}
    steps[step](answer, *arguments)
    sys.stderr.flush()
    os._exit(0)


def _import(answer: Callable[[Any], None], group: str, name: str, module: str) -> None:
    import importlib_metadata

    from .declared import BACKEND_GROUP
    from .discovery import load_backend

    entry_point = importlib_metadata.EntryPoint(name, module, group)
    try:
        if group == BACKEND_GROUP:
            load_backend(entry_point)
        else:
            entry_point.load()
    except KeyboardInterrupt:
        raise
    except BaseException:  # the process that needs the plugin will get the same, and contain it
        pass
    answer(None)


def _ask(answer: Callable[[Any], None], *names: str) -> None:
    from .discovery import get_backend, look_up

    for name in names:
        info = look_up(name)
        answer((name, asdict(info)))
        if info.usable:
            backend = get_backend(name)
            answer((name, asdict(backend.compiler_availability())))
            answer((name, asdict(backend.runtime_availability())))


if __name__ == "__main__":
    main(*sys.argv[1:])
