"""What a distribution says that it needs, and whether it is installed: from metadata alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import importlib_metadata


@dataclass(frozen=True)
class Need:
    """A distribution that another one needs: the requirement, the installed version, and why it is not met (or "")."""

    name: str
    requirement: str
    version: str | None
    reason: str


def unmet(requirement: Any, extra: str = "") -> str | None:
    """Why the environment does not meet a requirement that a distribution has with an extra; None if it does.

    `requirement` is a `packaging.requirements.Requirement`; the extras that it asks for count, too.
    """
    from packaging.requirements import Requirement

    if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
        return None
    try:
        found = importlib_metadata.distribution(requirement.name)
    except importlib_metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if not requirement.specifier.contains(found.version, prereleases=True):
        return f"{requirement.name} is {found.version}, not {requirement.specifier}"
    inner = [Requirement(text) for text in found.requires or ()]
    reasons = (unmet(item, asked) for asked in requirement.extras for item in inner if _only_with(item, asked))
    return next((reason for reason in reasons if reason is not None), None)


def _only_with(requirement: Any, extra: str) -> bool:
    """Whether a requirement is there with an extra and not without it."""
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def extras(distribution: Any) -> dict[str, str]:
    """The extras of a distribution: an empty text, or why it is not there."""
    from packaging.requirements import Requirement

    asked = [Requirement(text) for text in distribution.requires or ()]
    found = {}
    for extra in distribution.metadata.get_all("Provides-Extra") or ():
        reasons = (unmet(item, extra) for item in asked if _only_with(item, extra))
        found[extra] = next((reason for reason in reasons if reason is not None), "")
    return found


def needed(distribution: Any) -> tuple[Need, ...]:
    """What a distribution needs without extras."""
    from packaging.requirements import Requirement

    asked = [Requirement(text) for text in distribution.requires or ()]
    return tuple(
        Need(item.name, f"{item.name}{item.specifier}", _version(item.name), unmet(item) or "")
        for item in asked
        if item.marker is None or item.marker.evaluate({"extra": ""})
    )


def _version(name: str) -> str | None:
    try:
        return importlib_metadata.version(name)
    except importlib_metadata.PackageNotFoundError:
        return None
