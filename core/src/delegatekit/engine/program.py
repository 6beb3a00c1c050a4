"""Opens a .pte for running: validated first, each method made ready when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from delegatekit_api import ExecutionError, FormatError

from .. import discovery
from ..manifest import read_manifest
from ..pte import PteFile, Source, read
from ..pte.validate import validate, validate_data
from .delegate import BackendFinder, Runtimes
from .method import Method


class LoadedProgram(Mapping[str, Method]):
    """The methods of a file by name: `program["forward"](x)`.

    A method belongs to one thread at a time; `new_method` makes another instance, with its own arena and delegates,
    that shares the file's constants.
    """

    def __init__(self, file: PteFile, find_backend: BackendFinder) -> None:
        self._file = file
        self._runtimes = Runtimes(find_backend)
        self._plans = {str(plan.name): plan for plan in file.program.execution_plan or ()}
        self._methods: dict[str, Method] = {}

    def __getitem__(self, name: str) -> Method:
        if name not in self._methods:
            self._methods[name] = self.new_method(name)
        return self._methods[name]

    def __contains__(self, name: object) -> bool:
        return name in self._plans

    def __iter__(self) -> Iterator[str]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)

    def new_method(self, name: str) -> Method:
        """A fresh instance of a method. Raises RuntimeUnavailableError if a delegate cannot run here."""
        if name not in self._plans:
            raise ExecutionError(f"there is no method {name!r} (methods: {', '.join(self._plans)})")
        return Method(self._file, self._plans[name], self._runtimes)

    def close(self) -> None:
        """Release the delegates of all methods."""
        for method in self._methods.values():
            method.close()

    def __enter__(self) -> LoadedProgram:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def load(
    source: Source, *, data: Source | Sequence[Source] = (), find_backend: BackendFinder | None = None
) -> LoadedProgram:
    """Load a .pte from a path (mapped: constants stay in the file) or from bytes.

    `data` is the program's data file or files (.ptd), if it has any: paths, which are mapped, too, or bytes.
    Everything is validated before anything runs: raises FormatError with the fault's place. `find_backend` finds the
    backend of a delegate id, by default among the installed plugins.
    """
    file = read(source).with_data(data)
    validate(file)
    validate_data(file)
    _require_named_data(file)
    return LoadedProgram(file, find_backend or discovery.find_by_delegate_id)


def _require_named_data(file: PteFile) -> None:
    """Check that the data files given have the named data which the manifest says is in them."""
    for name, keys in read_manifest(file).data_files.items():
        missing = [key for key in keys if key not in file.named_data]
        if missing:
            which = f"the data file {name}.ptd" if name else "the .ptd that was written with it"
            raise FormatError(
                f"is outside the .pte, in {which} ({len(missing)} of its keys are missing)",
                where=f"named data {missing[0]}",
                hint="give the .ptd files that were written with it: load(path, data=[...])",
            )
