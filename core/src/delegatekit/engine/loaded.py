"""Opens a .pte for running: validated first, each method prepared on first use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TypeVar
from weakref import WeakSet

from delegatekit_api import FormatError, PluginError

from ..errors.misuse import UnknownBackendError, UnknownMethodError
from ..files import Source
from ..plugins import LoadedBackend, discovery, find_by_delegate_id
from ..pte import PteFile, read, schema
from ..pte.kernels import library_of
from ..pte.manifest import Manifest, Owner, read_manifest
from ..pte.reader import GIVE_DATA, external_key, naming
from ..pte.validation import validate, validate_data
from ..pte.writer import data_paths
from .delegate import BackendFinder, Runtimes
from .memory import SharedBuffers, check_shared
from .method import Method, check_time_limit

_Self = TypeVar("_Self", bound="Session")


@dataclass(frozen=True)
class _Common:
    """The state shared by the sessions of a program."""

    file: PteFile
    plans: Mapping[str, schema.ExecutionPlan]
    runtimes: Runtimes
    shared_names: frozenset[str]
    time_limit: float | None
    #: Held while a method is made.
    lock: Lock = field(default_factory=Lock)
    #: All methods that are alive.
    methods: WeakSet[Method] = field(default_factory=WeakSet)


class Session(Mapping[str, Method]):
    """One instance of each method of a program, made on first use: `session["forward"](x)`.

    Buffers that the file says the methods share are one memory in all methods of a session, and in no other session's.
    A session is for one thread at a time; getting methods from it is thread-safe.
    """

    def __init__(self, common: _Common) -> None:
        self._common = common
        self._shared = SharedBuffers(common.shared_names)
        self._methods: dict[str, Method] = {}

    def __getitem__(self, name: str) -> Method:
        with self._common.lock:
            if name not in self._methods:
                self._methods[name] = self._make(name)
            return self._methods[name]

    def __contains__(self, name: object) -> bool:
        return name in self._common.plans

    def __iter__(self) -> Iterator[str]:
        return iter(self._common.plans)

    def __len__(self) -> int:
        return len(self._common.plans)

    def reset(self) -> None:
        """Put the buffers of all methods back to their initial values, see `Method.reset`."""
        for method in self._made():
            method.reset()

    def close(self) -> None:
        """Release the delegates of all methods."""
        for method in self._made():
            method.close()

    def _made(self) -> list[Method]:
        with self._common.lock:
            return list(self._methods.values())

    def _make(self, name: str) -> Method:
        common = self._common
        if name not in common.plans:
            raise UnknownMethodError(f"there is no method {name!r} (methods: {', '.join(common.plans)})")
        method = Method(common.file, common.plans[name], common.runtimes, self._shared, common.time_limit)
        common.methods.add(method)
        return method

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class LoadedProgram(Session):
    """The methods of a file by name: `program["forward"](x)`.

    The program itself is a session. Concurrent threads use one each (`new_session`): sessions share the
    file's constants, but each has arenas, buffers and delegates of its own.
    """

    def __init__(
        self,
        file: PteFile,
        find_backend: BackendFinder,
        time_limit: float | None = None,
        isolate: bool | Collection[str] = False,
    ) -> None:
        plans = {str(plan.name): plan for plan in file.program.execution_plan or ()}
        shared = read_manifest(file).shared_state
        check_shared(file, plans.values(), shared)
        super().__init__(_Common(file, plans, Runtimes(find_backend, isolate), shared, time_limit))

    def new_session(self) -> Session:
        """Further instances of the methods, which share buffers among themselves only, starting with initial values."""
        return Session(self._common)

    def new_method(self, name: str) -> Method:
        """A further instance of one method, with buffers of its own.

        Raises RuntimeUnavailableError if a delegate cannot run here.
        """
        return self.new_session()[name]

    def close(self) -> None:
        """Release the delegates of all methods of all sessions."""
        with self._common.lock:
            methods = list(self._common.methods)
        for method in methods:
            method.close()


def load(
    source: Source,
    *,
    data: Source | Sequence[Source] = (),
    copy: bool = False,
    time_limit: float | None = None,
    backends: Sequence[str] = (),
    find_backend: Callable[[str], LoadedBackend] | None = None,
    isolate: bool | Collection[str] = False,
) -> LoadedProgram:
    """Load a .pte from a path (mapped: constants stay in the file) or from bytes.

    `data` is the program's data file or files (.ptd), if it has any: paths, which are mapped, too, or bytes. Without
    it, those beside the .pte are taken that were written with it. Everything is validated before anything runs: raises
    FormatError with the fault's place.

    A delegate is run by the plugin that made it, which the file names. `backends` are names of backends that run
    delegates of their ids instead, the first that can: to try another plugin, or to choose if a file names none and
    several can. Raises PluginError for one that runs none of the file's delegates. `find_backend` finds the backend of
    a delegate id itself.

    A mapped file must stay as it is: if another program truncates it in place, the system ends this process when the
    missing part is needed, and bytes that change after validation are not validated. To replace the file by a new one
    under the same name is safe. If that cannot be ruled out, `copy=True` reads the files into memory first.

    `time_limit` is in seconds of wall time for each call of a method: a call that takes longer is stopped with
    ExecutionError. The time is checked after each instruction: a kernel or delegate that takes long, or hangs,
    is not interrupted. Run such programs in a process that can be killed, as `delegatekit run --time-limit` does.
    `Method.time_limit` changes it for one method. Without it, only loops are bounded, by 10 million instructions.

    `isolate` names backends whose runtimes are to run in a process of their own, or is True for all; some always do.
    A crash is then an ExecutionError, and the next call restarts the process; a delegate that takes longer than the
    time limit is stopped. A mapping has an address for each, of a runtime on another machine ("tls://HOST:PORT").
    Raises PluginError for a name that no installed backend has.
    """
    check_time_limit(time_limit)
    _check_isolate(isolate)
    alone = read(source, copy=copy)
    with naming(source):
        validate(alone)
    given = isinstance(data, str | Path) or len(data)
    file = alone.with_data(data if given else _beside(source, alone), copy=copy)
    with naming(source):
        validate_data(file)
        _require_named_data(file)
    _refuse_unused_data(file)
    _check_backends(file, backends)
    return LoadedProgram(file, _finder(backends, find_backend), time_limit, isolate)


def _check_backends(file: PteFile, backends: Sequence[str]) -> None:
    """Raise PluginError for a backend that cannot be used, or runs none of the file's delegates."""
    if isinstance(backends, str):
        raise PluginError(f"backends = {backends!r} is a string", hint=f"pass a list: backends=[{backends!r}]")
    plans = file.program.execution_plan or ()
    ids = {str(delegate.id) for plan in plans for delegate in plan.delegates or ()}
    called = {library_of(item.full_name) for plan in plans for item in plan.operators or ()}
    for name in backends:
        delegate_id = discovery.get_backend(name).description.delegate_id
        if delegate_id not in ids | called:
            there = f"those of the file are of {', '.join(sorted(ids))}" if ids else "the file has none"
            raise UnknownBackendError(f"runs delegates of id {delegate_id}: {there}", where=f"backend {name}")


def _check_isolate(isolate: bool | Collection[str]) -> None:
    """Raise PluginError for names of backends that are not installed."""
    if isinstance(isolate, bool):
        return
    if isinstance(isolate, str):
        raise PluginError(f"isolate = {isolate!r} is a string", hint=f"pass a list: isolate=[{isolate!r}], or True")
    installed = discovery.backends(check=False)
    for name in isolate:
        if name not in installed:
            raise UnknownBackendError(f"there is no backend {name!r}", hint=f"installed: {', '.join(installed)}")


def _finder(backends: Sequence[str], find_backend: Callable[[str], LoadedBackend] | None) -> BackendFinder:
    def find(delegate_id: str, owner: Owner) -> LoadedBackend:
        if find_backend is not None:
            return find_backend(delegate_id)
        return find_by_delegate_id(delegate_id, owner.known, backends)

    return find


def _require_named_data(file: PteFile) -> None:
    """Check that the given data files have the named data that the manifest expects in them."""
    for name, keys in read_manifest(file).data_files.items():
        missing = [key for key in keys if key not in file.named_data]
        if missing:
            which = f"the data file {name}.ptd" if name else "the .ptd that was written with it"
            raise FormatError(
                f"is outside the .pte, in {which} ({len(missing)} of its keys are missing)",
                where=f"named data {missing[0]}",
                hint=GIVE_DATA,
            )


def _outside(file: PteFile) -> set[str]:
    """The keys of what a program needs of its data files."""
    wanted = {key for keys in read_manifest(file).data_files.values() for key in keys}
    for plan in file.program.execution_plan or ():
        wanted.update(
            external_key(value.val)
            for value in plan.values or ()
            if isinstance(value.val, schema.Tensor) and schema.is_external(value.val)
        )
    return wanted


def _beside(source: Source, file: PteFile) -> list[Path]:
    """The data files beside a .pte that were written with it, if it needs any."""
    if not isinstance(source, str | Path) or not _outside(file):
        return []
    names, place = read_manifest(file).data_files or ("",), Path(source)
    place = place.with_suffix(".pte") if place.suffix == ".bpte" else place
    return [path for path in data_paths(place, names) if path.is_file()]


def _refuse_unused_data(file: PteFile) -> None:
    """Check that the program needs data of each data file. Files without a manifest cannot be checked."""
    if not file.external:
        return
    if read_manifest(file).producer == Manifest().producer:
        return
    wanted = _outside(file)
    used = {stored.file for key, stored in file.external.items() if key in wanted}
    unused = sorted({stored.file for stored in file.external.values()} - used)
    if unused:
        raise FormatError(
            f"has nothing that the program needs ({len(wanted)} keys are outside the .pte)",
            where=unused[0],
            hint="give the .ptd files that were written with it, and no others",
        )
