"""The delegate inside stock ExecuTorch, with the vendor's library loaded into this process."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Final

from delegatekit_api import Availability, DelegatePayload, ExecutionError, FormatError, RuntimeUnavailableError
from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.capture import quiet
from delegatekit_toolkit.narrowing import wide_number
from delegatekit_toolkit.stock import StockDelegate, stock_has

from ..blob.header import Blob, border, read_blob, with_signature
from ..blob.installation import INSTALL, LIBRARIES, Installation, Missing, find_installation, unusable
from ..blob.spec import KEY, check_spec, measured
from ..blob.words import complaints
from ..targets import CHIPS
from .cycles import times_of

if TYPE_CHECKING:
    import torch

_DELEGATE_ID: Final = "QnnBackend"
_WHERE: Final = "QNN delegate"
_ERRORS: Final = {0x01: "internal error: Qualcomm's library refused the context or the call"}
#: Uninformative messages of library and delegate at each load. Complaints have other prefixes.
_CHATTER: Final = (
    "[INFO] [Qnn ExecuTorch]",
    "[WARNING] [Qnn ExecuTorch]: Qnn API version",
    "[WARNING] [Qnn ExecuTorch]: Heap profiling path",
    " # LIBNATIVE",
)


@dataclass(eq=False)
class Handle:
    """A delegate in the simulator, which is set up as its chip while it lives."""

    delegate: StockDelegate
    release: Callable[[], object]


class QnnRuntime:
    """A `DelegateRuntime` on stock ExecuTorch and Qualcomm's simulator."""

    def is_available(self) -> Availability:
        """Check that ExecuTorch is installed with the delegate, and the vendor's library."""
        found = find_installation()
        if isinstance(found, Missing):
            return found.availability
        known = stock_has(_DELEGATE_ID, INSTALL)
        if not known.available:
            return known
        try:
            _load(found)
        except OSError as error:
            return unusable(found, f"cannot be loaded: {error}").availability
        return known

    def init(self, payload: DelegatePayload) -> Handle:
        """Check blob and options, and load. Raises FormatError, or RuntimeUnavailableError without the library."""
        blob = read_blob(payload.blob)
        chip = _check(payload, blob)
        spec = bytes(payload.compile_specs[0].value)
        available = self.is_available()
        found = find_installation()
        if not available.available or isinstance(found, Missing):
            raise RuntimeUnavailableError(available.reason, where=_DELEGATE_ID)
        if blob.version and found.version and _numbers(blob.version) > _numbers(found.version):
            raise FormatError(
                f"was compiled by QNN {blob.version}, and here is {found.version}: older libraries read no newer blobs",
                where=_WHERE,
                hint="compile it with the older library, or install the newer one",
            )

        def change(program: bytes) -> bytes:
            return with_signature(program, payload.blob, next(_SIGNATURES))

        with _LOCK:
            _SIMULATED.enter(chip)
            try:
                with _calm():
                    delegate = StockDelegate(
                        payload,
                        (),
                        where=_WHERE,
                        errors=_ERRORS,
                        change=change,
                        watched=lambda program: change(program).replace(spec, measured(spec), 1),
                    )
            except BaseException:
                _SIMULATED.leave()
                raise
        handle = Handle(delegate, lambda: None)
        handle.release = weakref.finalize(handle, _SIMULATED.leave)
        return handle

    def execute(self, handle: Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once. Raises ExecutionError, also for an integer that does not fit the device's 32 bits."""
        _check_numbers(inputs)
        with _LOCK:
            handle.delegate.execute(inputs, outputs)

    def profile(
        self, handle: Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> Sequence[OperatorTime]:
        """As `execute`, and the share of each operation in the simulator's time, by the processor's cycles.

        On the first call the delegate is loaded again, with profiling. Raises ExecutionError.
        """
        _check_numbers(inputs)
        with _LOCK, _calm():
            return times_of(handle.delegate.events(inputs, outputs))

    def destroy(self, handle: Handle) -> None:
        """Release the delegate; calling twice is harmless."""
        with _LOCK, _calm():
            handle.delegate.destroy()
        handle.release()


def _check_numbers(inputs: Sequence[torch.Tensor]) -> None:
    for place, item in enumerate(inputs):
        number = wide_number(item)
        if number is not None:
            raise ExecutionError(f"input {place} has the number {number}: the device computes in 32 bits", where=_WHERE)


class _Simulated:
    """The chip that the simulator of this process is set up as, as long as delegates live.

    The library accepts contexts for another one, too, and computes them; but then the earlier ones fail.
    """

    def __init__(self) -> None:
        self._chip: tuple[int, int] | None = None
        self._living = 0

    def enter(self, chip: tuple[int, int]) -> None:
        """Add a delegate for a chip. Raises RuntimeUnavailableError if others are for another one."""
        if self._living and self._chip != chip:
            raise RuntimeUnavailableError(
                f"is for {_name(chip)}, and the simulator is {_name(self._chip)}: it is one chip at a time",
                where=_WHERE,
                hint="release what is loaded for the other chip first, or load this in another process",
            )
        self._chip = chip
        self._living += 1

    def leave(self) -> None:
        """Remove a delegate."""
        self._living -= 1


_SIMULATED: Final = _Simulated()
#: The delegate has one simulator in a process, and fails if two threads use it.
_LOCK: Final = RLock()
#: Delegates of a process with one signature share a context, which ends with the first: each handle has its own.
_SIGNATURES: Final = count(1)


def _name(chip: tuple[int, int] | None) -> str:
    number, memory = chip or (0, 0)
    known = next((item.name for item in CHIPS.values() if item.number == number), f"chip {number}")
    return f"the {known} with {memory} MB of VTCM"


def _check(payload: DelegatePayload, blob: Blob) -> tuple[int, int]:
    """The chip. Refuses specs that the delegate would accept silently, and then access invalid memory."""
    specs = payload.compile_specs
    if [spec.key for spec in specs] != [KEY]:
        raise FormatError(f"has the compile specs {[spec.key for spec in specs]}, not {KEY} alone", where=_WHERE)
    chip = check_spec(specs[0].value)
    sides = [[(item.dtype, item.shape) for item in side] for side in (payload.inputs, payload.outputs)]
    if payload.numbers or (blob.borders and border(payload.method, *sides) not in blob.borders):
        raise FormatError(
            f"has no graph {payload.method!r} with the inputs and outputs that the file says", where=_WHERE
        )
    return chip


@contextmanager
def _calm() -> Iterator[None]:
    """Send output inside to stderr, without the repeated messages; errors contain the library's complaints."""
    said: list[str] = []
    try:
        with quiet(*_CHATTER, lines=said), quiet(*_CHATTER, descriptor=2, lines=said):
            yield
    except (FormatError, ExecutionError) as error:
        found = complaints("\n".join(said)) if said else []
        if not found:
            raise
        words = "".join(f"\n    {line}" for line in found)
        raise type(error)(f"{error.what}{words}", where=error.where, hint=error.hint) from error


@cache
def _load(found: Installation) -> None:
    """Load the vendor's libraries by their paths: the delegate then finds them by name.

    torch is loaded already, and with it the unwinder that must come before the vendor's.
    """
    with _calm():
        for name in LIBRARIES:
            ctypes.CDLL(str(found.folder / name))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
