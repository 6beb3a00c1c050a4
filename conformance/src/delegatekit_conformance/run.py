"""A whole run: the results with the facts needed to trust or repeat them."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from delegatekit.plugins import LoadedBackend, discovery
from delegatekit_api import DelegateKitError
from delegatekit_tools.dialect import absence

from .context import Context
from .declaration import Declaration
from .described import Description, describe
from .installed import Installation, of_plugin
from .outcome import CaseResult
from .stock import device_precision

_VERSIONS = (
    *("delegatekit-conformance", "delegatekit", "delegatekit-api", "delegatekit-toolkit", "delegatekit-tools"),
    *("torch", "executorch", "numpy", "hypothesis"),
)


@dataclass(frozen=True)
class BackendFacts:
    """A backend's description of itself."""

    name: str
    distribution: str
    version: str
    delegate_id: str = ""
    summary: str = ""
    #: Of the plugin interface that the plugin was written for: "1.1".
    api_version: str = ""
    #: The lowest precision that it computes float32 graphs in; tolerances follow from it.
    compute_precision: str = "float32"
    supports_dynamic_shapes: bool = False
    #: True if its blobs can run here, else the reason.
    available: bool = True
    reason: str = ""
    #: True if the runtime on the device takes sizes that change, too.
    device_dynamic_shapes: bool = True
    #: The lowest precision of the runtime on the device, by which the stock runtime is judged.
    device_compute_precision: str = ""
    #: The operators of its support table, with why a name cannot occur in a program ("" if it can); None if the plugin
    #: does not report them.
    rows: Mapping[str, str] | None = None
    #: The vendor's tool that verifies what was compiled (empty if there is none), whether it did, and if not, why.
    verifier: str = ""
    verified: bool = False
    unverified: str = ""
    #: What is installed of its distribution.
    installation: Installation = field(default_factory=Installation)
    #: The version of the vendor's compiler with the run's options, as the plugin tells it; "" if it tells none.
    compiler: str = ""

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any] | None = None) -> BackendFacts:
        """The facts of an installed backend with these options. Raises what `discovery.get_backend` raises."""
        backend = discovery.get_backend(name)
        description = backend.description
        availability = backend.runtime_availability()
        return cls(
            backend.name,
            backend.distribution,
            backend.version,
            description.delegate_id,
            description.summary,
            str(backend.info.api_version),
            backend.compute_precision(options),
            description.supports_dynamic_shapes,
            availability.available,
            availability.reason,
            description.device_dynamic_shapes,
            device_precision(backend, options),
            _rows(backend),
            *_verification(backend, options),
            of_plugin(discovery.entry_point_of(name)),
            _compiler(backend, options),
        )


def _rows(backend: LoadedBackend) -> dict[str, str] | None:
    table = backend.documentation().operators
    if table is None:
        return None
    return {entry.operator: absence(entry.operator, whole=entry.whole) for entry in table.entries}


def _verification(backend: LoadedBackend, options: Mapping[str, Any] | None) -> tuple[str, bool, str]:
    told = backend.verification(backend.make_options(options or {}))
    return ("", False, "") if told is None else (told.judge, told.used, told.reason)


def _compiler(backend: LoadedBackend, options: Mapping[str, Any] | None) -> str:
    try:
        return backend.compiler_version(backend.make_options(options or {})) or ""
    except DelegateKitError:  # the suite's own cases tell of it
        return ""


@dataclass(frozen=True)
class Run:
    """A run of the suite, or one shard of it."""

    backend: BackendFacts
    #: One for each case, in the order of the suite.
    results: tuple[CaseResult, ...]
    seed: int = 0
    profile: str = "default"
    #: The pattern of the names of the cases that were chosen.
    selection: str = "*"
    #: (1, 4) is the first of four; None is the whole.
    shard: tuple[int, int] | None = None
    #: Options of the backend, as text.
    options: Mapping[str, str] = field(default_factory=dict)
    #: CPU seconds that one example might take.
    timeout: float = 60.0
    #: When the run began, in UTC: "2026-11-21T12:00:00Z".
    started: str = ""
    #: Seconds of wall time.
    seconds: float = 0.0
    #: Versions of the packages involved: suite, core, API, torch, the backend's wheel and what it requires.
    versions: Mapping[str, str] = field(default_factory=dict)
    #: Facts about the machine: "platform", "processor", "cores", "memory", "python".
    machine: Mapping[str, str] = field(default_factory=dict)
    #: Facts about the device that ran the delegates, as given for the run: "name", "driver".
    device: Mapping[str, str] = field(default_factory=dict)
    #: Patterns of the expectations file that match no case.
    unused_expectations: tuple[str, ...] = ()
    #: The backend's declarations that loosen a check, with the run's measurements.
    declarations: tuple[Declaration, ...] = ()
    #: The backend's description of itself; None in documents of older suites.
    description: Description | None = None
    #: Where the list of known faults is from: its file's name and SHA-256; "" without one.
    expectations: str = ""
    #: Number of cases that were chosen, and that the suite has for the backend; 0 in documents of older suites.
    chosen: int = 0
    suite: int = 0

    @classmethod
    def of(cls, context: Context, results: Iterable[CaseResult], **facts: Any) -> Run:
        """A run in this environment; `facts` are further fields."""
        values: dict[str, Any] = {
            "backend": facts.get("backend") or BackendFacts.of(context.backend, context.options),
            "seed": context.seed,
            "profile": context.profile.name,
            "options": {key: str(value) for key, value in context.options.items()},
            "timeout": context.timeout,
            "started": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "versions": versions(discovery.get_backend(context.backend).distribution),
            "machine": machine(),
            "description": describe(discovery.get_backend(context.backend), context.options),
        }
        return cls(results=tuple(results), **(values | facts))

    @property
    def faults(self) -> tuple[CaseResult, ...]:
        """Cases with a fault of the backend that is not expected."""
        return tuple(result for result in self.results if result.is_fault)

    @property
    def unexpected_passes(self) -> tuple[CaseResult, ...]:
        """Cases that an expectation names, and that have no fault."""
        return tuple(result for result in self.results if result.expected is not None and not result.verdict.is_fault)


def versions(distribution: str) -> dict[str, str]:
    """Versions of the suite's dependencies, of a backend's distribution and its requirements; installed ones only."""
    found: dict[str, str] = {}
    for name in (*_VERSIONS, distribution, *_requirements(distribution)):
        try:
            found.setdefault(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            continue
    return found


def _requirements(distribution: str) -> list[str]:
    try:
        lines = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return []
    return [match[0] for line in lines if (match := re.match(r"[\w.-]+", line))]


def machine() -> dict[str, str]:
    """Facts about this machine, as text."""
    facts = {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
        "python": platform.python_version(),
    }
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        facts["memory"] = f"{memory / 2**30:.1f} GiB"
    except (AttributeError, ValueError, OSError):
        pass
    return facts


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*: *(.+)$", text, re.M)
    return match[1].strip() if match else platform.machine()
