"""The settings of one run of the suite, as plain data: the options of the command and of the pytest plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .context import PROFILES, Context, Profile
from .errors import InputError


@dataclass(frozen=True)
class Settings:
    """The settings of one run. Raises InputError, an `OptionError`, if a value is out of its range.

    Whether the backend is installed, takes the options and has cases of these names is checked by `Session`.
    """

    #: The name of an installed backend.
    backend: str
    #: Patterns of the names of cases: fnmatch for the whole name ("operators/*conv*"), or leading parts of it
    #: ("contract"). None selects all cases.
    select: tuple[str, ...] = ()
    #: Amount of testing: "quick", "default", "thorough", or a profile of your own.
    profile: str | Profile = "default"
    #: The same seed gives the same examples.
    seed: int = 0
    #: Options of the backend, as `delegatekit.lower` takes them for it.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Number of cases run in parallel, each in a process.
    jobs: int = 2
    #: CPU seconds that one example may take; five times as long if it sleeps.
    timeout: float = 60.0
    #: GiB of memory that a process may have, 0 for no limit (Linux).
    memory: float = 8.0
    #: (1, 4) is the first of four parts of the chosen cases; None is all of them.
    shard: tuple[int, int] | None = None
    #: A file that keeps finished cases. Those that it holds are not run again.
    resume: Path | None = None
    #: The run stops after this many cases with faults; 0 for never.
    maxfail: int = 0
    #: A file of known faults, used instead of the vendor's `conformance.toml`.
    expectations: Path | None = None
    #: The address of a Dask scheduler whose workers run the cases; empty for this machine. `jobs` has no effect there.
    scheduler: str = ""
    #: Run files in the stock ExecuTorch runtime, too, where that is installed and knows the delegate.
    stock: bool = True
    #: Facts about the device that runs the delegates, for the report: {"name": "emulator"}.
    device: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.profile, str) and self.profile not in PROFILES:
            raise InputError(f"no profile {self.profile!r}; there are {', '.join(PROFILES)}")
        if isinstance(self.select, str):
            raise InputError(f"select is {self.select!r}; give a tuple of patterns")
        for name, least in (("jobs", 1), ("timeout", 1), ("memory", 0), ("maxfail", 0)):
            if not getattr(self, name) >= least:
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be at least {least}")
        if self.shard is not None and not 1 <= self.shard[0] <= self.shard[1]:
            raise InputError(f"shard is {self.shard!r}; it must be (I, N) with I from 1 to N")

    @property
    def context(self) -> Context:
        """The settings that every process of the run gets."""
        profile = PROFILES[self.profile] if isinstance(self.profile, str) else self.profile
        return Context(self.backend, profile, self.seed, self.options, self.timeout, self.stock)
