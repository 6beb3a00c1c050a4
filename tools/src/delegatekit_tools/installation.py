"""The state of the installation and its problems: the facts of `delegatekit doctor` and of bug reports."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import importlib_metadata
from packaging.requirements import Requirement

from delegatekit.plugins import (
    BACKEND_GROUP,
    COMMAND_GROUP,
    OBSERVER_GROUP,
    CheckedBackend,
    backends,
    check_backends,
    entry_points,
    owner,
    unmet,
)
from delegatekit_toolkit.processes import search_path

from .releases import installed_version

#: Seconds that torch, and each backend, has to be imported.
TIME_LIMIT: Final = 60.0
#: The distributions that belong to every installation.
_OURS: Final = ("delegatekit", "delegatekit-api", "delegatekit-toolkit")
#: The prefix of environment variables that affect DelegateKit.
_VARIABLES: Final = ("DELEGATEKIT_", "OMP_", "TORCH_")


@dataclass(frozen=True)
class Problem:
    """A problem, and the command that solves it."""

    what: str
    hint: str


@dataclass(frozen=True)
class Need:
    """A distribution that another one needs: the requirement, the installed version, and why it is not met (or "")."""

    name: str
    requirement: str
    version: str | None
    reason: str


@dataclass(frozen=True)
class InstalledDistribution:
    """A distribution of DelegateKit or a plugin, and the state of its requirements."""

    name: str
    version: str
    needs: tuple[Need, ...]
    #: Extra -> an empty string, or the reason why it is not installed.
    extras: Mapping[str, str]
    #: Its backends, observers and commands: "backend NAME".
    brings: tuple[str, ...]
    #: The reason why its metadata cannot be read; empty if it can.
    damage: str = ""


@dataclass(frozen=True)
class Installation:
    """The facts about an installation for a bug report."""

    python: Mapping[str, str]
    machine: Mapping[str, str]
    #: The version of torch, or the reason why it cannot be imported.
    torch: Mapping[str, str]
    distributions: Sequence[InstalledDistribution]
    backends: Sequence[CheckedBackend]
    variables: Mapping[str, str]
    problems: Sequence[Problem]


def doctor(*, seconds: float = TIME_LIMIT) -> Installation:
    """Examine the installation; torch and each backend are imported in separate processes with this time limit."""
    distributions = [_examined(name, brings) for name, brings in sorted(_brought().items())]
    checked = list(check_backends(backends(check=False).values(), seconds=seconds).values())
    torch = _torch(seconds)
    problems = [*_of_distributions(distributions), *_of_torch(torch), *_of_backends(checked)]
    return Installation(_python(), _machine(), torch, distributions, checked, _variables(), problems)


def _brought() -> dict[str, list[str]]:
    """The plugins of each distribution of DelegateKit and of plugins."""
    found: dict[str, list[str]] = {name: [] for name in _OURS}
    for group, kind in ((BACKEND_GROUP, "backend"), (OBSERVER_GROUP, "observer"), (COMMAND_GROUP, "command")):
        for entry_point in entry_points(group):
            name, _ = owner(entry_point)
            if name != "unknown":
                found.setdefault(name, []).append(f"{kind} {entry_point.name}")
    return found


def _examined(name: str, brings: Sequence[str]) -> InstalledDistribution:
    try:
        found = importlib_metadata.distribution(name)
        return InstalledDistribution(name, found.version, _needed(found), _extras(found), tuple(dict.fromkeys(brings)))
    except Exception as error:  # whatever damaged metadata makes importlib_metadata and packaging raise
        return InstalledDistribution(name, "unknown", (), {}, tuple(brings), f"{type(error).__name__}: {error}")


def _needed(distribution: Any) -> tuple[Need, ...]:
    """The requirements of a distribution without extras."""
    asked = [Requirement(text) for text in distribution.requires or ()]
    return tuple(
        Need(item.name, f"{item.name}{item.specifier}", installed_version(item.name), unmet(item) or "")
        for item in asked
        if item.marker is None or item.marker.evaluate({"extra": ""})
    )


def _extras(distribution: Any) -> dict[str, str]:
    """The extras of a distribution: an empty text, or why it is not there."""
    names = distribution.metadata.get_all("Provides-Extra") or ()
    return {name: unmet(Requirement(f"{distribution.name}[{name}]")) or "" for name in names}


def _python() -> dict[str, str]:
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "virtual environment": "yes" if sys.prefix != sys.base_prefix else "no",
    }


def _machine() -> dict[str, str]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        "CPUs": str(os.cpu_count()),
    }


def _variables() -> dict[str, str]:
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}


def _torch(seconds: float) -> dict[str, str]:
    """`version` if it can be imported; otherwise `reason`."""
    command = [sys.executable, "-c", "import torch; print(torch.__version__)"]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env=search_path(), check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return {"reason": f"importing it took longer than {seconds:g} s"}
    if ended.returncode == 0 and ended.stdout.strip():
        return {"version": ended.stdout.split()[-1]}
    said = ended.stderr.strip().splitlines()[-1:]
    return {"reason": said[0] if said else f"importing it ended with exit code {ended.returncode}"}


def _of_distributions(found: Sequence[InstalledDistribution]) -> Iterator[Problem]:
    for item in found:
        again = f"pip install --force-reinstall {item.name}"
        if item.damage:
            yield Problem(f"{item.name}: its metadata cannot be read ({item.damage})", again)
        for need in item.needs:
            if need.reason:
                what = f"{item.name} needs {need.requirement}: {need.reason}"
                yield Problem(what, f"pip install '{need.requirement}'")


def _of_torch(facts: Mapping[str, str]) -> Iterator[Problem]:
    if "reason" in facts:
        yield Problem(f"torch cannot be imported: {facts['reason']}", "pip install --force-reinstall torch")


def _of_backends(found: Sequence[CheckedBackend]) -> Iterator[Problem]:
    hints = {
        "duplicate": "pip uninstall one of them",
        "incompatible": "pip install --upgrade {name} delegatekit",
    }
    for item in found:
        if item.info.status not in ("ready", "not allowed"):
            hint = hints.get(item.info.status, "pip install --force-reinstall {name}")
            what = f"backend {item.info.name} is {item.info.status}: {item.info.reason}"
            yield Problem(what, hint.format(name=item.info.distribution))
