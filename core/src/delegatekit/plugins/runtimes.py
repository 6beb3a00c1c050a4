"""Whether backends compile and run here: at once from what is installed, or by asking each in a process of its own.

From metadata follows only what the distribution declares: a backend whose blobs run in Python has an extra named
`runtime`, which lists what it needs for that beside its dependencies (and may be empty).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from delegatekit_api import Availability

from . import first_import
from .backend import BackendInfo
from .discovery import declared_requirements, entry_point_of
from .requirements import unmet

#: The extra of a plugin's distribution with what its runtime needs.
RUNTIME_EXTRA: Final = "runtime"
#: Seconds that a backend has to be imported and to answer.
TIME_LIMIT: Final = 60.0


@dataclass(frozen=True)
class CheckedBackend:
    """What a backend answered, or why it did not."""

    info: BackendInfo
    #: Whether it can compile here, with its default options. None if the backend is not usable at all.
    compiler: Availability | None
    #: Whether its blobs run here. None if the backend is not usable, or died of the first question.
    runtime: Availability | None


def expected_runtime(info: BackendInfo) -> Availability:
    """Whether what a backend's runtime needs is installed, by metadata alone: nothing is imported. Never raises.

    The reason names the first requirement that is not met.
    """
    from packaging.requirements import Requirement

    try:
        extras, requirements = declared_requirements(info.name)
        if RUNTIME_EXTRA not in extras:
            return Availability(False, f"declares no extra {RUNTIME_EXTRA!r}: files run on the device only")
        for text in requirements:
            reason = unmet(Requirement(text), RUNTIME_EXTRA)
            if reason is not None:
                return Availability(False, f"{reason}: pip install '{info.distribution}[{RUNTIME_EXTRA}]'")
    except Exception as error:  # whatever damaged metadata makes importlib_metadata and packaging raise
        return Availability(False, f"its metadata cannot be read: {type(error).__name__}: {error}")
    return Availability(True)


def check_backends(found: Iterable[BackendInfo], *, seconds: float = TIME_LIMIT) -> dict[str, CheckedBackend]:
    """Import each backend, and ask its compiler and its runtime, in a process of its own.

    One that hangs or crashes is told as broken. Backends that metadata alone rules out are not imported. `seconds` is
    the time that each process has.
    """
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        checked = threads.map(lambda info: _checked(info, seconds), found)
    return {item.info.name: item for item in checked}


def _checked(info: BackendInfo, seconds: float) -> CheckedBackend:
    if info.status != "not imported":
        return CheckedBackend(info, None, None)
    probed = first_import.probe("ask", info.name, seconds=seconds)
    answers, failure = [json.loads(line) for line in probed.lines], probed.failure
    first_import.remember(entry_point_of(info.name), "" if answers else failure)
    if not answers:
        return CheckedBackend(replace(info, status="broken", reason=f"importing it {failure}"), None, None)
    info = BackendInfo(**answers[0])
    if not info.usable:
        return CheckedBackend(info, None, None)
    if len(answers) < 2:
        return CheckedBackend(info, Availability(False, f"asking about its compiler {failure}"), None)
    compiler = Availability(**answers[1])
    if len(answers) < 3:
        return CheckedBackend(info, compiler, Availability(False, f"asking its runtime {failure}"))
    return CheckedBackend(info, compiler, Availability(**answers[2]))
