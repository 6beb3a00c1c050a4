"""A distribution's declared requirements, and whether they are installed: from metadata alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import importlib_metadata

from delegatekit_api.versions import PROJECT


def unmet(requirement: Any, extra: str = "") -> str | None:
    """The reason why the environment does not meet a requirement of a distribution with an extra; None if it does.

    `requirement` is a `packaging.requirements.Requirement`; its extras are checked, too.
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


def unmet_of_ours(distribution: Any) -> Iterator[str]:
    """The reasons why a plugin does not fit the installed packages of DelegateKit, by the ranges that it declares."""
    from packaging.requirements import Requirement

    for text in (distribution and distribution.requires) or ():
        if text.startswith(PROJECT) and (reason := unmet(Requirement(text))):
            yield f"needs {text}: {reason}"


def _only_with(requirement: Any, extra: str) -> bool:
    """True if a requirement applies with an extra and not without it."""
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})
