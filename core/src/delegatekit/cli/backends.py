"""`delegatekit backends`: list the installed backends."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from delegatekit_api import Availability

from ..plugins import backends as find
from ..plugins.runtimes import TIME_LIMIT, CheckedBackend, check_backends, expected_runtime
from .arguments import JsonOption
from .console import out, print_json, say, table


def backends(
    check: Annotated[
        bool,
        typer.Option("--check", help="Import each backend, in a process of its own, and ask whether it works."),
    ] = False,
    timeout: Annotated[float, typer.Option(help="With --check: seconds that each backend has to answer.")] = TIME_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """List the installed backends and whether they work here: from metadata, or with --check by asking them."""
    listed = find(check=False).values()
    if check:
        rows = list(check_backends(listed, seconds=timeout).values())
    else:
        rows = [
            CheckedBackend(info, None, expected_runtime(info) if info.status == "not imported" else None)
            for info in listed
        ]
    if as_json:
        print_json({item.info.name: _facts(item) for item in rows})
        return
    if not rows:
        say("no backends are installed: pip install delegatekit-NAME")
        return
    headers = ("backend", "distribution", "version", *(["API"] if check else []), "lowering", "runs here")
    lines = []
    for item in rows:
        info = item.info
        version = [info.api_version or "?"] if check else []
        runs = _answer(item.runtime, "yes" if check else "installed")
        lines.append((info.name, info.distribution, info.version, *version, _lowering(item), runs))
    out.print(table(headers, lines))
    if not check:
        say("From the metadata of what is installed; `delegatekit backends --check` asks each backend.")


def _facts(item: CheckedBackend) -> dict[str, Any]:
    answers = {"compiler": item.compiler, "runtime": item.runtime}
    return asdict(item.info) | {name: asdict(answer) if answer else None for name, answer in answers.items()}


def _lowering(item: CheckedBackend) -> str:
    """The text of the column `lowering`."""
    if item.info.status == "not imported":
        return "installed"
    return _answer(item.compiler, "ready") if item.info.usable else f"{item.info.status}: {item.info.reason}"


def _answer(found: Availability | None, good: str) -> str:
    """An answer in a column; nothing if there is none."""
    return "" if found is None else good if found.available else f"no: {found.reason}"
