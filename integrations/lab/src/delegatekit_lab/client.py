"""The user's side: a backend's runtime on a board, with the protocol of runtimes in processes of their own.

What a process on this machine would get as shared memory, the board gets as bytes.
"""

from __future__ import annotations

import getpass
import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from secrets import token_hex
from time import monotonic
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from delegatekit.plugins import LoadedBackend, described, warn
from delegatekit.plugins.apart import RuntimeApart, RuntimeDiedError
from delegatekit.plugins.apart.child import START, Child, Giver
from delegatekit.plugins.apart.memory import Arena, read_pieces
from delegatekit_api import DelegateKitError, ExecutionError, FormatError, RuntimeUnavailableError, TensorSpec

from .addresses import Address
from .wire import Answer, Ask, ClosedError, Failure, Frame, Hello, Welcome, Wire, extent, is_shape, message, said

#: Environment variables: the secret that makes several processes one user of a board, and the seconds to wait for
#: another user's end.
LEASE: Final = "DELEGATEKIT_LAB_LEASE"
WAIT: Final = "DELEGATEKIT_LAB_WAIT"
_WAIT: Final = 60.0
#: Seconds for a connection to be made, and beyond a board's own time limit for its answer.
_CONNECT: Final = 10.0
_GRACE: Final = 10.0
#: Seconds in which a board that did not answer is not asked again: who makes many calls shall not wait for each.
_SILENCE: Final = 15.0


def _nothing(wanted: Mapping[str, Any]) -> Any:
    raise ExecutionError("asks for data of its file when there is none")


class _Place:
    """A board as the loaded backend's owner of a connection: it lives as long as that."""


_PLACES: Final[WeakKeyDictionary[LoadedBackend, dict[str, _Place]]] = WeakKeyDictionary()
_WARNED: Final[set[str]] = set()
#: Until when (of `time.monotonic`) boards are not asked.
_SILENT: Final[dict[Address, float]] = {}


def runtime(backend: LoadedBackend, address: str) -> RuntimeApart:
    """The runtime of a backend on the board at an address. Raises OptionError for what is no address of a board."""
    where = Address.of(address)
    place = _PLACES.setdefault(backend, {}).setdefault(address, _Place())
    return RuntimeApart(
        place, backend.description, partial(Remote, backend.name, backend.info.distribution, backend.version, where)
    )


def hello(do: str = "use", **facts: Any) -> Hello:
    """The first message of this process. Its children are the same user of a board: they inherit the lease."""
    lease = os.environ.setdefault(LEASE, token_hex(16))
    user = f"{getpass.getuser()}@{socket.gethostname()}"
    return Hello(do, user=user, lease=lease, wait=_seconds_to_wait(), **facts)


def _seconds_to_wait() -> float:
    try:
        return min(max(float(os.environ.get(WAIT, _WAIT)), 0.0), 86400.0)
    except ValueError:
        return _WAIT


class _AwayError(Exception):
    """A board cannot be reached; the text says which and why."""


def greet(address: Address, first: Hello) -> tuple[Wire, Welcome]:
    """A connection to a board, and its welcome. Raises RuntimeUnavailableError, and what the board answers instead."""
    try:
        return _greet(address, first)
    except _AwayError as error:
        raise RuntimeUnavailableError(f"the board is out of reach: {error}") from None


def _greet(address: Address, first: Hello) -> tuple[Wire, Welcome]:
    try:
        wire = Wire(address.connect(_CONNECT), str(address))
    except (OSError, ssl.SSLError) as error:
        raise _AwayError(f"{address}: {said(error)}") from None
    try:
        with suppress(ClosedError):  # of a board that refuses the certificate: it says so
            wire.send(asdict(first))
        frame = wire.receive(monotonic() + first.wait + _GRACE)
        if "error" not in frame.header:
            return wire, message(Welcome, frame.header, wire.where)
        refusal = message(Failure, frame.header["error"], wire.where).error()
    except (ClosedError, FormatError, TimeoutError) as fault:
        wire.close()
        raise _AwayError(
            str(fault)
            if isinstance(fault, FormatError)
            else f"{address}: {'does not answer' if isinstance(fault, TimeoutError) else fault}"
        ) from None
    wire.close()
    raise refusal


@dataclass
class _Loaded:
    """A delegate on the board, and the memory that the runtime's proxy reads and writes."""

    arena: Arena
    shapes: list[torch.Size]


class Remote(Child):
    """A connection to a board, in the place of a process of this machine."""

    def __init__(self, backend: str, distribution: str, version: str, address: Address) -> None:
        self._distribution, self._version, self._address = distribution, version, address
        super().__init__(backend)

    def _begin(self) -> None:
        self._wire: Wire | None = None
        self._limit = 0.0
        self._board = str(self._address)
        self._loaded: dict[int, _Loaded] = {}

    @property
    def alive(self) -> bool:
        """True unless the connection is closed here or there: then the next call makes another."""
        return self._open and not (self._wire is not None and self._wire.is_over)

    @alive.setter
    def alive(self, value: bool) -> None:
        """Whether this side keeps the connection."""
        self._open = value

    def ask(
        self,
        message: Mapping[str, Any],
        files: Sequence[Any] = (),
        deadline: float | None = None,
        giver: Giver = _nothing,
    ) -> Mapping[str, Any]:
        """The answer to a request. Raises what the runtime raised, and RuntimeDiedError."""
        try:
            wire = self._wire = self._wire or self._connect()
            frame = self._exchange(wire, message, files, deadline, giver)
            if "died" in frame.header:
                raise RuntimeDiedError(f"on {self._board} {frame.header['died']}")
            if "error" not in frame.header:
                return self._taken(message, frame)
        except RuntimeUnavailableError as error:  # another user has the board
            self.stop()
            if message["do"] != "available":
                raise
            return {"available": False, "reason": str(error)}
        except (ClosedError, FormatError, TimeoutError, _AwayError) as error:
            self.stop()
            if isinstance(error, TimeoutError):
                _SILENT[self._address] = monotonic() + _SILENCE
            words = "does not answer" if isinstance(error, TimeoutError) else error
            away = error if isinstance(error, _AwayError) else f"{self._board} {words}"
            if message["do"] == "init":
                raise RuntimeUnavailableError(f"the board is out of reach: {away}") from None
            raise RuntimeDiedError(f"is out of reach: {away}") from None
        except BaseException:  # the end of the runtime's process; Ctrl-C
            self.stop()
            raise
        raise self._failure(frame)

    def stop(self) -> None:
        """Close the connection, after which the board ends what it does for it."""
        self.alive = False
        if self._wire is not None:
            self._wire.close()

    def close(self) -> None:
        """Close the connection."""
        self.stop()

    def forget(self) -> None:
        """Close this end of the connection, unless it belongs to the process that forked this one."""
        self.stop()

    def _connect(self) -> Wire:
        if monotonic() < _SILENT.get(self._address, 0.0):
            raise _AwayError(f"{self._address}: has just not answered, and is asked again after {_SILENCE:g} s")
        wire, told = _greet(
            self._address, hello(backend=self._backend, distribution=self._distribution, version=self._version)
        )
        self._limit = told.time_limit
        self._board = f"{told.board} ({self._address})"
        if told.version != self._version and self._board not in _WARNED:
            _WARNED.add(self._board)
            warn(f"backend {self._backend} is version {told.version} on {self._board} and {self._version} here")
        return wire

    def _request(self, header: dict[str, Any], files: Sequence[int]) -> tuple[dict[str, Any], list[Any]]:
        """What goes over the wire for a message to a process of this machine."""
        if header["do"] == "init":
            pieces = read_pieces(os.dup(files[0]), header.pop("places"))
            inputs, outputs = ([TensorSpec(**item) for item in header[name]] for name in ("inputs", "outputs"))
            arena = Arena(inputs, outputs, header["gap"], os.dup(files[1]))
            arena.close_file()
            shapes = [slot.largest for slot in (*arena.inputs, *arena.outputs)]
            self._loaded[header["handle"]] = _Loaded(arena, shapes)
            return header, list(pieces)
        if header["do"] == "destroy":
            self._loaded.pop(header["handle"], None)
        if header["do"] not in ("execute", "profile"):
            return header, []
        loaded = self._loaded[header["handle"]]
        if "shapes" in header:
            loaded.shapes = list(header["shapes"])
            header["shapes"] = [list(shape) for shape in loaded.shapes]
        sizes = [
            shape.numel() * slot.dtype.itemsize for slot, shape in zip(loaded.arena.inputs, loaded.shapes, strict=False)
        ]
        return header, [slot.memory[:size] for slot, size in zip(loaded.arena.inputs, sizes, strict=True)]

    def _exchange(
        self, wire: Wire, message: Mapping[str, Any], files: Sequence[Any], deadline: float | None, giver: Giver
    ) -> Frame:
        now = monotonic()
        left = None if deadline is None else max(deadline - now, 0.0)
        header, pieces = self._request(dict(message), files)
        wire.send({**header, "seconds": left}, pieces)
        most = START if header["do"] == "available" else self._limit
        return self._answer_of(wire, now + (most if left is None else min(left, most)) + _GRACE, giver)

    def _answer_of(self, wire: Wire, until: float, giver: Giver) -> Frame:
        while True:
            frame = wire.receive(until)
            if "ask" not in frame.header:
                return frame
            message(Ask, frame.header, wire.where)
            try:
                piece = giver(frame.header)
            except Exception as error:
                wire.send({"error": described(error)})
                continue
            wire.send({}, [piece])

    def _taken(self, asked: Mapping[str, Any], frame: Frame) -> Mapping[str, Any]:
        """The answer as that of a process of this machine, after its bytes are in the memory of the outputs."""
        answer = message(Answer, frame.header, self._board)
        if asked["do"] in ("execute", "profile"):
            loaded = self._loaded[asked["handle"]]
            changed = {index: (shape, strides) for index, shape, strides in answer.changed}
            slots = loaded.arena.outputs
            if len(frame.pieces) != len(slots) or not all(0 <= index < len(slots) for index in changed):
                raise FormatError(f"sent {len(frame.pieces)} outputs of {len(slots)}", where=self._board)
            for index, (slot, piece) in enumerate(zip(slots, frame.pieces, strict=True)):
                shape = loaded.shapes[len(loaded.arena.inputs) + index]
                sizes, strides = changed.get(index, (tuple(shape), tuple(slot.strides(shape))))
                fits = len(sizes) == len(strides) and is_shape(sizes) and is_shape(strides)
                if (
                    not fits
                    or extent(sizes, strides) * slot.dtype.itemsize != len(piece)
                    or len(piece) > len(slot.memory)
                ):
                    raise FormatError(f"sent output {index} with other bytes than its sizes have", where=self._board)
                slot.memory[: len(piece)] = piece
        found = asdict(answer)
        return {**found, "changed": [(index, list(shape), list(strides)) for index, shape, strides in answer.changed]}

    def _failure(self, frame: Frame) -> Exception:
        try:
            error = message(Failure, frame.header["error"], self._board).error()
        except FormatError as wrong:
            self.stop()
            return RuntimeDiedError(f"is out of reach: {wrong}")
        if isinstance(error, DelegateKitError):
            with suppress(Exception):
                return type(error)(
                    error.what, where=f"{error.where or 'its runtime'}, on {self._board}", hint=error.hint
                )
        return error
