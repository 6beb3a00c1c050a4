"""The releases of distributions that are installed here."""

from __future__ import annotations

import importlib_metadata


def installed_version(distribution: str) -> str | None:
    """The version of a distribution; None if it is not installed, or if a name from a file is none."""
    try:
        return importlib_metadata.version(distribution)
    except (importlib_metadata.PackageNotFoundError, ValueError):
        return None
