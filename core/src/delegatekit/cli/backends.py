"""`delegatekit backends`: list the installed backends."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from delegatekit_api import Availability

from ..plugins import BackendInfo
from ..plugins import backends as find
from ..plugins.runtimes import TIME_LIMIT, check_backends, expected_runtime
from .arguments import JsonOption
from .console import out, print_json, table


def backends(
    check: Annotated[
        bool, typer.Option("--check", help="Import each backend and ask its runtime, in a process of its own.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="With --check: seconds that each backend has to answer.")] = TIME_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """List the installed backends and whether they run here: from metadata, or with --check by asking them."""
    rows: list[tuple[BackendInfo, Availability | None]]
    listed = find(check=False).values()
    if check:
        rows = [(item.info, item.runtime) for item in check_backends(listed, seconds=timeout).values()]
    else:
        rows = [(info, expected_runtime(info) if info.status == "not imported" else None) for info in listed]
    if as_json:
        facts = {info.name: asdict(info) | {"runtime": asdict(runtime) if runtime else None} for info, runtime in rows}
        print_json(facts)
        return
    if not rows:
        out.print("no backends are installed: pip install delegatekit-NAME")
        return
    headers = ("backend", "distribution", "version", *(["API"] if check else []), "lowering", "runs here")
    lines = []
    for info, runtime in rows:
        runs = "" if runtime is None else "yes" if runtime.available else f"no: {runtime.reason}"
        version = [info.api_version or "?"] if check else []
        lines.append((info.name, info.distribution, info.version, *version, _status(info), runs))
    out.print(table(headers, lines))
    if not check:
        out.print("From the metadata of what is installed; `delegatekit backends --check` asks each backend.")


def _status(info: BackendInfo) -> str:
    """What the column `lowering` says."""
    if info.status == "not imported":
        return "installed"
    return info.status if info.usable else f"{info.status}: {info.reason}"
