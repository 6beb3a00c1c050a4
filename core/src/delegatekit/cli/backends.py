"""`delegatekit backends`: list the installed backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from delegatekit_api import Availability
from delegatekit_api.versions import PROJECT

from ..plugins import backends as find
from ..plugins import entry_points, fault
from ..plugins.allowed import forbidden
from ..plugins.runtimes import TIME_LIMIT, CheckedBackend, check_backends, expected_runtime
from .arguments import JsonOption
from .console import out, print_json, say, table, usage, warn

#: Entry points of functions that are given the backends' names, and have a line to say of some of them.
FACTS_GROUP: Final = f"{PROJECT}.facts"


def backends(
    name: Annotated[str | None, typer.Argument(help="A backend; without it, all.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Import each backend, in a process of its own, and ask whether it works.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="With --check: seconds that each backend has to answer.")] = TIME_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """List the installed backends and whether they work here: from metadata, or with --check by asking them."""
    found = find(check=False)
    if name is not None and name not in found:
        usage(f"there is no backend {name!r}", f"installed: {', '.join(found)}" if found else None)
    listed = found.values() if name is None else [found[name]]
    if check:
        rows = list(check_backends(listed, seconds=timeout).values())
    else:
        rows = [
            CheckedBackend(info, None, expected_runtime(info) if info.status == "not imported" else None)
            for info in listed
        ]
    told = _told([info.name for info in listed])
    if as_json:
        print_json({item.info.name: _facts(item, told) for item in rows})
        return
    if not rows:
        say("no backends are installed: pip install delegatekit-NAME")
        return
    headers = ("backend", "distribution", "version", *(["API"] if check else []), "lowering", "runs here", *told)
    lines = []
    for item in rows:
        info = item.info
        version = [info.api_version or "?"] if check else []
        more = [lines.get(info.name, "") for lines in told.values()]
        runs = _answer(item.runtime, "yes" if check else "installed")
        lines.append((info.name, info.distribution, info.version, *version, _lowering(item), runs, *more))
    out.print(table(headers, lines))
    if not check:
        say("From the metadata of what is installed; `delegatekit backends --check` asks each backend.")


def _facts(item: CheckedBackend, told: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    found = asdict(item)
    return {**found.pop("info"), **found} | {title: lines.get(item.info.name) for title, lines in told.items()}


def _told(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """What other distributions tell of backends: the entry point's name, the backend's, a line."""
    found = {}
    for entry_point in entry_points(FACTS_GROUP):
        try:
            if forbidden(entry_point) is None:
                found[entry_point.name] = dict(entry_point.load()(names))
        except Exception as error:  # whatever it raises: the list is complete without it
            warn(f"{entry_point.name} of {entry_point.value} tells nothing of backends: {fault(error)}")
    return {title: lines for title, lines in found.items() if lines}


def _lowering(item: CheckedBackend) -> str:
    """The text of the column `lowering`."""
    if item.info.status == "not imported":
        return "installed"
    return _answer(item.compiler, "ready") if item.info.usable else f"{item.info.status}: {item.info.reason}"


def _answer(found: Availability | None, good: str) -> str:
    """An answer in a column; nothing if there is none."""
    return "" if found is None else good if found.available else f"no: {found.reason}"
