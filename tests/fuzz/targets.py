"""The contract of a reader for any bytes: a program or one DelegateKitError, in bounded time and memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import delegatekit as dk
from delegatekit_api import DelegateKitError, PluginError
from delegatekit_tools.inspection.inspection import inspect_data
from delegatekit_tools.placement.measurements import Measurements

#: Bytes that loading takes at most, and the additional ones for each byte of the tables (what is not segments).
ALLOWED = 64 << 20
ALLOWED_PER_BYTE = 256


def is_within(seconds: float, work: Callable[[], object]) -> bool:
    """True if work takes at most this many CPU seconds of its thread, in the best of three runs.

    Slowness caused by the file recurs; garbage collection of the whole test process does not.
    """
    for _ in range(3):
        start = time.thread_time()
        work()
        if time.thread_time() - start < seconds:
            return True
    return False


def no_backend(delegate_id: str) -> NoReturn:
    """Only the runtime's own operators: what plugins do with a blob is tested with the plugins."""
    raise PluginError(f"no backend for {delegate_id}")


def load(program: bytes, data: Sequence[bytes] = (), *, plugins: bool = False) -> dk.LoadedProgram | None:
    """Load and describe a program; None if it is refused. Anything but a DelegateKitError is our fault."""
    try:
        dk.inspect(program)
        return dk.load(program, data=data) if plugins else dk.load(program, data=data, find_backend=no_backend)
    except DelegateKitError as error:
        assert str(error)
        return None


def make_methods(program: dk.LoadedProgram) -> list[Any]:
    """The methods that can be made ready."""
    found = []
    for name in program:
        try:
            found.append(program[name])
        except DelegateKitError as error:
            assert str(error)
    return found


def load_data(data: bytes) -> bool:
    """Describe a data file; False if it is refused."""
    try:
        str(inspect_data(data))
    except DelegateKitError as error:
        assert str(error)
        return False
    return True


def verify(bundle: bytes) -> None:
    """Run the cases of a bundle."""
    try:
        str(dk.verify(bundle))
    except DelegateKitError as error:
        assert str(error)


def read_dump(dump: bytes, program: bytes) -> bool:
    """Read an ETDump, with its program and without; True if it is accepted."""
    accepted = False
    for source in (program, None):
        try:
            str(dk.read_etdump(dump, source))
            accepted = True
        except DelegateKitError as error:
            assert str(error)
    return accepted


def read_measurements(data: bytes) -> bool:
    """Read a file of measurements, show it, and write it again; True if it is accepted."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "measurements.json"
        path.write_bytes(data)
        try:
            found = Measurements.load(path)
            str(found)
            found.units_text()
            found.save(path)
            return True
        except DelegateKitError as error:
            assert str(error)
            return False


class Memory:
    """Measures the most that Python and NumPy have allocated inside a `with` block, in bytes."""

    peak = 0

    def __enter__(self) -> Memory:
        tracemalloc.start()
        return self

    def __exit__(self, *exception: object) -> None:
        _, self.peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()


def run(method: Any, inputs: Sequence[Any]) -> None:
    """Run a method on inputs that may not fit it: flat, and as a call with the structure that the file says."""
    for way in (lambda: method.run(inputs), lambda: method(*inputs)):
        try:
            way()
        except DelegateKitError as error:
            assert str(error)
