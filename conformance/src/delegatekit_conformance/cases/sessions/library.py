"""The programs that a backend takes something of, each exported and lowered once in a process."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from torch.export import ExportedProgram

import delegatekit
from delegatekit import Compiling, LoweredProgram
from delegatekit.plugins import LoadedBackend, discovery
from delegatekit_toolkit.accuracy import Accuracy, estimate

from ...context import Context
from ...insides import bytes_of
from ..base import NotApplicable
from ..specimens import compiles, digest, runs
from .pairs import export
from .programs import KINDS, Kind

#: Most calls of one session that build upon one another's state, as the tolerance allows for.
_CALLS = 100


@dataclass(frozen=True)
class Wanted:
    """A program that is to be lowered."""

    kind: Kind
    seed: int
    #: True if its constants are to lie in separate data files.
    external: bool = False
    #: The number of one option that has another value than its default; -1 for none.
    option: int = -1

    @property
    def name(self) -> str:
        """Its variable in scripts."""
        more = "_external" * self.external + (f"_option_{self.option}" if self.option >= 0 else "")
        return f"{self.kind.name.replace('-', '_')}_{self.seed}{more}"


@dataclass(frozen=True)
class Lowered:
    """A program, as it was lowered."""

    wanted: Wanted
    program: LoweredProgram
    #: The accuracy of each method's results.
    accuracy: Mapping[str, Accuracy]

    @property
    def kind(self) -> Kind:
        """The program without its seed."""
        return self.wanted.kind

    @property
    def seed(self) -> int:
        """The seed of its weights."""
        return self.wanted.seed

    @property
    def data(self) -> list[bytes]:
        """Its data files."""
        return list(self.program.data_files.values())

    @property
    def named(self) -> Mapping[str, str]:
        """The named data of its delegates: digests of the contents, by key."""
        return {
            item.key: digest(bytes_of(item.data))
            for method in self.program.methods.values()
            for delegate in method.delegates
            for item in delegate.named_data
        }

    @property
    def delegates(self) -> int:
        """The number of its delegates."""
        return sum(len(method.parts) for method in self.program.methods.values())

    @property
    def kept(self) -> bool:
        """True if a delegate keeps a buffer."""
        return any(one.partition.buffers for method in self.program.methods.values() for one in method.delegates)

    @property
    def delegated_nodes(self) -> int:
        """The number of operators in its delegates."""
        return sum(method.delegated_nodes for method in delegatekit.report(self.program).methods)

    @property
    def fallback_calls(self) -> int:
        """The number of calls of the runtime's own operators."""
        return sum(method.fallback_calls for method in delegatekit.report(self.program).methods)


@dataclass
class Library:
    """The programs, lowered with one backend and its options, or with none: for faults of the core."""

    context: Context
    backends: tuple[str, ...]
    #: Digests of the contents of the delegates' named data, by key, of all programs that were lowered.
    named: dict[str, str] = field(default_factory=dict)
    _exported: dict[tuple[str, int], dict[str, ExportedProgram]] = field(default_factory=dict)
    _lowered: dict[Wanted, Lowered] = field(default_factory=dict)
    _usable: list[Kind] | None = None

    @property
    def precision(self) -> str:
        """The backend's compute precision; without a backend, eager's."""
        if not self.backends:
            return "float64"
        return discovery.get_backend(self.context.backend).compute_precision(self.context.options)

    def exported(self, kind: Kind, seed: int) -> dict[str, ExportedProgram]:
        """The program's methods. Raises exceptions of torch.export."""
        key = kind.name, seed
        if key not in self._exported:
            self._exported[key] = export(kind.build, seed)
        return self._exported[key]

    def lowered(self, wanted: Wanted) -> Lowered:
        """The program, lowered; once in this process. Raises exceptions of lowering."""
        if wanted not in self._lowered:
            self._lowered[wanted] = self.lower(wanted)
        return self._lowered[wanted]

    def lower(self, wanted: Wanted, options: Mapping[str, object] | None = None, *, cache: bool = False) -> Lowered:
        """The program, lowered anew, with more `options`. Raises exceptions of lowering."""
        methods = self.exported(wanted.kind, wanted.seed)
        chosen = {**self.options_of(wanted), **(options or {})}
        program = delegatekit.lower(
            methods,
            backends=self.backends,
            options={self.context.backend: chosen} if self.backends and chosen else None,
            external=wanted.external,
            compiling=Compiling(cache=cache),
        )
        calls = _CALLS if "stateful" in wanted.kind.traits else 1
        accuracy = {name: estimate(method, calls=calls) for name, method in methods.items()}
        return Lowered(wanted, program, accuracy)

    def options_of(self, wanted: Wanted) -> dict[str, Any]:
        """The backend's options for a program: those of the run, and the one that is changed."""
        return {**self.context.options, **self.changed(wanted.option)}

    def changed(self, number: int) -> dict[str, Any]:
        """The option of a number with another value than its default; nothing for a number below 0."""
        if number < 0 or not self.backends:
            return {}
        backend = discovery.get_backend(self.context.backend)
        found = [
            {item.name: value}
            for item in backend.description.options.describe()
            for value in (item.choices or ((not item.default,) if isinstance(item.default, bool) else ()))
            if value != item.default and item.name not in self.context.options
        ]
        return found[number % len(found)] if found else {}

    def file_option(self) -> str:
        """The name of an option that names a file; empty if there is none."""
        if not self.backends:
            return ""
        backend = discovery.get_backend(self.context.backend)
        names = [item.name for item in backend.description.options.describe() if _names_a_file(item)]
        return names[0] if names else ""

    def usable(self, wanted: Collection[str] = (), unwanted: Collection[str] = ()) -> list[Kind]:
        """The kinds with all traits `wanted` and none `unwanted`, of which the backend takes something.

        Raises NotApplicable if there are none. Other rooms report programs that cannot be lowered at all.
        """
        if self._usable is None:
            self._usable = [kind for kind in KINDS.values() if self._taken(kind)]
        found = [kind for kind in self._usable if kind.traits.issuperset(wanted) and kind.traits.isdisjoint(unwanted)]
        if not found:
            raise NotApplicable("the backend takes no operator of these programs")
        return found

    def keeping(self, kinds: Collection[Kind]) -> list[Kind]:
        """Those kinds of which a delegate keeps a buffer. Raises NotApplicable if there are none."""
        found = [kind for kind in kinds if self.lowered(Wanted(kind, 0)).kept]
        if not found:
            raise NotApplicable("no delegate of these programs keeps a buffer")
        return found

    def _taken(self, kind: Kind) -> bool:
        try:
            return self.lowered(Wanted(kind, 0)).delegates > 0
        except Exception:
            return False


def _names_a_file(item: Any) -> bool:
    return item.type.startswith("str") and item.choices is None and "path" in item.help.lower()


def content(lowered: Lowered) -> str:
    """A digest of all files of a program."""
    program = lowered.program
    parts = [program.buffer, *(part for name, data in program.data_files.items() for part in (name.encode(), data))]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


_LIBRARIES: WeakKeyDictionary[LoadedBackend, dict[str, Library]] = WeakKeyDictionary()


def library_of(context: Context, *, runnable: bool = True) -> Library:
    """The library of a run's backend and options. Raises NotApplicable if it compiles nothing, or nothing runs here."""
    backend = runs(context) if runnable else compiles(context)
    table = _LIBRARIES.setdefault(backend, {})
    return table.setdefault(repr(context.option_items), Library(context, (context.backend,)))
