"""Reads the plugins that distributions declare; those with damaged metadata are reported and skipped.

Nothing is imported here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import importlib_metadata as metadata

from delegatekit_api.versions import PROJECT

from .blame import fault, warn

_GROUPS: Final = f"{PROJECT}."
BACKEND_GROUP: Final = f"{PROJECT}.backends"
OBSERVER_GROUP: Final = f"{PROJECT}.observers"
#: Entry points of further commands: functions for Typer, or Typer applications that hold several.
COMMAND_GROUP: Final = f"{PROJECT}.commands"
#: Entry points named by a scheme of addresses: functions that take a loaded backend and an address of this scheme, and
#: return the backend's runtime there.
RUNTIME_GROUP: Final = f"{PROJECT}.runtimes"


def entry_points(group: str) -> tuple[metadata.EntryPoint, ...]:
    """The entry points of one DelegateKit group, of all distributions. Warns once of an unreadable distribution."""
    return tuple(entry_point for entry_point in _all() if entry_point.group == group)


def owner(entry_point: metadata.EntryPoint) -> tuple[str, str]:
    """Name and version of the distribution, "unknown" if its metadata is damaged."""
    distribution: Any = entry_point.dist
    return ("unknown", "unknown") if distribution is None else _name_and_version(distribution)


@cache
def _name_and_version(distribution: metadata.Distribution) -> tuple[str, str]:
    """Name and version of a distribution, whose metadata is parsed again on each access."""
    try:
        return (distribution.name or "unknown", distribution.version or "unknown")
    except Exception:  # whatever importlib_metadata raises for a half-deleted installation
        return ("unknown", "unknown")


def normalized(distribution: str) -> str:
    """A distribution's name as normalized by package indexes."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def refresh() -> None:
    """Clear the caches, so that packages installed since are seen."""
    _all.cache_clear()
    _name_and_version.cache_clear()


@cache
def _all() -> tuple[metadata.EntryPoint, ...]:
    """The entry points of all DelegateKit groups. Other distributions are not read beyond this file."""
    found: dict[str, tuple[metadata.EntryPoint, ...]] = {}
    for distribution in metadata.distributions():
        try:
            if PROJECT not in (distribution.read_text("entry_points.txt") or ""):
                continue
            name = _name(distribution) or str(len(found))
            if name not in found:
                ours = (item for item in _first(name, distribution).entry_points if item.group.startswith(_GROUPS))
                found[name] = tuple(item for item in ours if item.name)
        except Exception as error:  # text that is not UTF-8, a line that is no entry point
            name = _name(distribution) or "a distribution without a name"
            warn(f"the plugins of {name} are left out: its entry_points.txt cannot be read ({fault(error)})")
            found[name] = ()
    return tuple(entry_point for entry_points in found.values() for entry_point in entry_points)


def _name(distribution: Any) -> str:
    """The normalized name, "" if the metadata is damaged."""
    try:
        return normalized(distribution.name or "")
    except Exception:
        return ""


def _first(name: str, distribution: Any) -> Any:
    """The one distribution of this name that Python finds, if several folders of the path have one."""
    try:
        return metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return distribution
