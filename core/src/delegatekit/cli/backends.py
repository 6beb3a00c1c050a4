"""`delegatekit backends`: list the installed backends."""

from __future__ import annotations

import dataclasses
import json

from rich.markup import escape
from rich.table import Table

from .arguments import JsonOption
from .console import out


def backends(as_json: JsonOption = False) -> None:
    """List the installed backends: version, API version, and whether they can be used, or why not."""
    from ..plugins import backends as find
    from ..plugins import get_backend

    found = find()
    runtimes = {name: get_backend(name).runtime_availability() if info.usable else None for name, info in found.items()}
    if as_json:
        rows = {
            name: dataclasses.asdict(info)
            | {"runtime": None if (runtime := runtimes[name]) is None else dataclasses.asdict(runtime)}
            for name, info in found.items()
        }
        print(json.dumps(rows, indent=1))
        return
    if not found:
        out.print("no backends are installed: pip install delegatekit-NAME")
        return
    table = Table("backend", "distribution", "version", "API", "lowering", "runs here")
    for name, info in found.items():
        runtime = runtimes[name]
        runs = "" if runtime is None else "yes" if runtime.available else f"no: {runtime.reason}"
        status = "ready" if info.usable else f"{info.status}: {info.reason}"
        table.add_row(name, info.distribution, info.version, info.api_version or "?", escape(status), escape(runs))
    out.print(table)
