"""The availability of backends' compilers and runtimes here: from metadata, or by asking each in a separate process.

Metadata only shows what the distribution declares: a backend whose blobs run in Python has an extra named
`runtime`, which lists the requirements for that besides its dependencies (and may be empty).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from delegatekit_api import Availability

from . import first_import
from .backend import BackendInfo
from .discovery import entry_point_of
from .requirements import unmet

#: The extra of a plugin's distribution with its runtime's requirements.
RUNTIME_EXTRA: Final = "runtime"
#: Time limit for a backend's import and answers in seconds.
TIME_LIMIT: Final = 60.0


@dataclass(frozen=True)
class CheckedBackend:
    """A backend's answers, or the reason why there are none."""

    info: BackendInfo
    #: The availability of its compiler here, with its default options. None if the backend is not usable at all.
    compiler: Availability | None
    #: The availability of its runtime here. None if the backend is not usable, or died during the first question.
    runtime: Availability | None


def expected_runtime(info: BackendInfo) -> Availability:
    """The availability of a backend's runtime by metadata alone: nothing is imported. Never raises.

    The reason names the first requirement that is not met.
    """
    from packaging.requirements import Requirement

    try:
        found: Any = entry_point_of(info.name).dist
        if RUNTIME_EXTRA not in (found.metadata.get_all("Provides-Extra") or ()):
            return Availability(False, f"declares no extra {RUNTIME_EXTRA!r}: files run on the device only")
        for text in found.requires or ():
            reason = unmet(Requirement(text), RUNTIME_EXTRA)
            if reason is not None:
                return Availability(False, f"{reason}: pip install '{info.distribution}[{RUNTIME_EXTRA}]'")
    except Exception as error:  # whatever importlib_metadata and packaging raise for damaged metadata
        return Availability(False, f"its metadata cannot be read: {type(error).__name__}: {error}")
    return Availability(True)


def check_backends(found: Iterable[BackendInfo], *, seconds: float = TIME_LIMIT) -> dict[str, CheckedBackend]:
    """Import each backend, and ask its compiler and its runtime, in a separate process.

    Those of one distribution share a process, unless one of them hangs or crashes: it is reported as broken, and those
    after it get processes of their own. Backends ruled out by metadata are not imported. `seconds` is the time limit
    of each process.
    """
    groups = [list(group) for _, group in groupby(found, lambda info: info.distribution)]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        checked = threads.map(lambda group: [*_checked(group, seconds)], groups)
        return {item.info.name: item for group in checked for item in group}


#: What a backend answered, and why it answered no more.
_Answers = tuple[list[dict[str, Any]], str]


def _checked(group: Sequence[BackendInfo], seconds: float) -> Iterator[CheckedBackend]:
    """Of one distribution, in its order."""
    names = [info.name for info in group if info.status == "not imported"]
    answers = _asked(names, seconds) if names else {}
    for info in group:
        if info.name not in answers:
            yield CheckedBackend(info, None, None)
            continue
        given = answers[info.name]
        if len(names) > 1 and len(given[0]) < 3:  # it is not usable, or the process ended
            (given,) = _asked([info.name], seconds).values()
        first_import.remember(entry_point_of(info.name), "" if given[0] else given[1])
        yield _of(info, given)


def _asked(names: Sequence[str], seconds: float) -> dict[str, _Answers]:
    """Asked one after the other in one process, as far as it comes."""
    probed = first_import.probe("ask", *names, seconds=seconds)
    said = [json.loads(line) for line in probed.lines]
    return {name: ([fact for of, fact in said if of == name], probed.failure) for name in names}


def _of(info: BackendInfo, given: _Answers) -> CheckedBackend:
    answers, failure = given
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
