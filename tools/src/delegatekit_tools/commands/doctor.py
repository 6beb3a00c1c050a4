"""`delegatekit doctor`: what is installed here, whether it works, and the line that helps where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from delegatekit.cli import FAILED, JsonOption, print_json, results_alone, show
from delegatekit.plugins import CheckedBackend
from delegatekit.version import __version__
from delegatekit_api import Availability
from delegatekit_api.versions import API_VERSION

from ..installation import TIME_LIMIT, Installation, InstalledDistribution
from ..installation import doctor as examine


@results_alone
def doctor(
    timeout: Annotated[
        float, typer.Option(help="Seconds that torch, and each backend, has to be imported.")
    ] = TIME_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """Check the installation: Python, torch, plugins, and what they need. With --json: all facts for a bug report."""
    found = examine(seconds=timeout)
    if as_json:
        print_json({"delegatekit": __version__, "plugin_api": str(API_VERSION), **asdict(found)})
    else:
        show(found, lambda told: "\n".join(_lines(told)))
    if found.problems:
        raise typer.Exit(FAILED)


def _lines(found: Installation) -> Iterator[str]:
    yield f"DelegateKit {__version__}, takes plugins of API {API_VERSION.major}.0 to {API_VERSION}"
    yield f"Python {found.python['version']}: {found.python['executable']}"
    yield f"{found.machine['system']}, {found.machine['machine']}, {found.machine['CPUs']} CPUs"
    yield f"torch {found.torch.get('version') or 'cannot be imported: ' + found.torch['reason']}"
    checked = {f"backend {item.info.name}": item for item in found.backends}
    for distribution in found.distributions:
        yield from _distribution(distribution, checked)
    yield from (f"{name}={value}" for name, value in found.variables.items())
    yield ""
    if absent := sum(not (item.compiler and item.compiler.available) for item in found.backends if item.info.usable):
        yield f"{'1 backend does' if absent == 1 else f'{absent} backends do'} not lower here: the reason is told above"
    yield f"{len(found.problems)} problem{'s' * (len(found.problems) > 1)}:" if found.problems else "no problems found"
    for problem in found.problems:
        yield f"  {problem.what}"
        yield f"    -> {problem.hint}"


def _distribution(item: InstalledDistribution, checked: dict[str, CheckedBackend]) -> Iterator[str]:
    yield f"{item.name} {item.version}" + (f": its metadata cannot be read ({item.damage})" if item.damage else "")
    if item.needs:
        yield "  needs " + ", ".join(f"{need.name} {need.version or '(not installed)'}" for need in item.needs)
    for extra, reason in item.extras.items():
        if reason:
            yield f"  extra {extra}: {reason} -> pip install '{item.name}[{extra}]'"
        else:
            yield f"  extra {extra}: found"
    for name in item.brings:
        yield f"  {name}{_state(checked[name]) if name in checked else ''}"


def _state(item: CheckedBackend) -> str:
    if not item.info.usable:
        return f": {item.info.status}: {item.info.reason}"
    lowers = _answer(item.compiler, "lowers", "does not lower here")
    return f" (API {item.info.api_version}): {lowers}; {_answer(item.runtime, 'runs here', 'does not run here')}"


def _answer(found: Availability | None, good: str, bad: str) -> str:
    if found is None:
        return f"{bad}: it was not asked"
    return good if found.available else f"{bad}: {found.reason}"
