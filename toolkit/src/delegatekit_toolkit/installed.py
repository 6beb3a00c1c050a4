"""Checks for the Python package of a vendor's tool without importing it."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from delegatekit_api import Availability


def installed(
    module: str, words: str, install: str, *, distribution: str = "", oldest: str = "", too_new: str = ""
) -> Availability:
    """The answer to the hook `compiler_availability` for a tool that is a top-level module.

    `words` is the tool's name in messages, `install` the command that installs it. `oldest` is the first release that
    fits, `too_new` the first later one that does not: releases of `distribution`, which is named as the module if it is
    not given. A module of another distribution has no release that is known here, and passes.

    >>> installed("json", "JSON", "pip install json")
    Availability(available=True, reason='')
    >>> installed("no_such_tool", "the compiler", "pip install no-such-tool").reason
    'the compiler is not installed: pip install no-such-tool'
    >>> installed("torch", "PyTorch", "pip install 'torch<1.5'", oldest="1.4", too_new="1.5").reason
    "PyTorch ... is installed: this backend needs 1.4 or later, and before 1.5: pip install 'torch<1.5'"
    """
    if find_spec(module) is None:
        return Availability(False, f"{words} is not installed: {install}")
    found = release_of(distribution or module)
    numbers = _numbers(found)
    if not numbers or (_numbers(oldest) <= numbers and (not too_new or numbers < _numbers(too_new))):
        return Availability(True)
    needed = [f"{oldest} or later"] * bool(oldest) + [f"before {too_new}"] * bool(too_new)
    what = f"{words} {found} is installed: this backend needs {', and '.join(needed)}"
    return Availability(False, f"{what}: {install}")


def release_of(distribution: str) -> str:
    """The version of an installed distribution; "" if there is none. Nothing is loaded.

    >>> release_of("no-such-tool")
    ''
    """
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _numbers(release: str) -> tuple[int, ...]:
    """The numbers that a version begins with: (2025, 4) of "2025.4rc1"."""
    found = re.match(r"\d{1,9}(\.\d{1,9})*", release)
    return tuple(map(int, found[0].split("."))) if found else ()
