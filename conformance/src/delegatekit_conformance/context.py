"""Inputs of every case: the backend, the profile, the seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delegatekit_api.devices import TargetInfo

    from .outcome import Outcome


@dataclass(frozen=True)
class Profile:
    """The amount of testing."""

    name: str
    #: Examples of an operator in float32; float16 gets half, other floats a third, the rest a fifth, at least one.
    examples: int
    #: Random graphs.
    graphs: int
    #: Places where each blob is truncated, and bits that are flipped.
    truncations: int
    flips: int
    #: CPU seconds of each history in which something may grow.
    growth_seconds: float
    #: Run the large models, too.
    large_models: bool = False
    #: Sequences of steps over sessions, of each kind.
    sequences: int = 12
    #: CPU seconds that the search for a smaller example may take, for each kind of fault.
    shrink_seconds: float = 10.0
    #: Programs of several examples each, for each operator and dtype of which the backend takes the first example.
    joined: int = 4
    #: Run each example also without the backend; if not, only wrong ones, to find whose fault it is.
    alone: bool = True
    #: Try extreme sizes and numbers in all dtypes; if not, in the first and in those of written ones.
    all_extremes: bool = True


PROFILES: Mapping[str, Profile] = {
    "quick": Profile(
        "quick",
        examples=1,
        graphs=12,
        truncations=20,
        flips=40,
        growth_seconds=1.0,
        sequences=12,
        shrink_seconds=2.0,
        joined=1,
        alone=False,
        all_extremes=False,
    ),
    "default": Profile(
        "default", examples=16, graphs=150, truncations=20, flips=200, growth_seconds=4.0, sequences=100
    ),
    "thorough": Profile(
        "thorough",
        examples=400,
        graphs=2000,
        truncations=100,
        flips=2000,
        growth_seconds=20.0,
        large_models=True,
        sequences=1000,
        joined=20,
    ),
}


#: Imports of a script for `Context.script`.
IMPORTS = "from delegatekit_conformance.context import PROFILES, Context\n"


@dataclass(frozen=True)
class Context:
    """The circumstances of a run; the same in every process of the run."""

    backend: str
    profile: Profile = field(default_factory=lambda: PROFILES["default"])
    seed: int = 0
    #: Options of the backend.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: CPU seconds that one example may take; five times as long if it sleeps.
    timeout: float = 60.0
    #: Run files in the stock ExecuTorch runtime, too, where that is installed and knows the delegate.
    stock: bool = True
    #: True if a fault of a case is known already: it is not shrunk.
    known: Callable[[str, Outcome], bool] | None = None

    @property
    def by_backend(self) -> Mapping[str, Mapping[str, Any]] | None:
        """The options as `delegatekit.lower` takes them for its backends; None if there are none."""
        return {self.backend: self.options} if self.options else None

    def beside(self, options: Mapping[str, Any]) -> Context:
        """The context with other options beside those of the run, or instead of these where they have one name."""
        return replace(self, options={**self.options, **options})

    def for_target(self, target: TargetInfo) -> Context:
        """The context with the options of another target, and those with which its programs run here."""
        return self.beside({**target.options, **target.on_host})

    @property
    def option_items(self) -> tuple[tuple[str, Any], ...]:
        """The options in one order: key of anything cached per options."""
        return tuple(sorted(self.options.items()))

    @property
    def script(self) -> str:
        """The context as an expression, for scripts that have `IMPORTS`."""
        options = f", options={dict(self.options)!r}" if self.options else ""
        return f"Context({self.backend!r}, PROFILES[{self.profile.name!r}], seed={self.seed}{options})"

    def seed_of(self, name: str) -> int:
        """The seed of a case: depends on the run's seed and on the name alone, not on the order of cases."""
        return zlib.crc32(name.encode()) ^ (self.seed * 0x9E3779B1 & 0xFFFFFFFF)
