"""The board's side: serves the runtime of one backend, in a process that may crash, to one user at a time.

A connection has a thread; all connections of a user share the runtime's process, which ends with the last of them. What
comes over the wire is checked here, and again by the runtime's process.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from threading import BoundedSemaphore, Event, Thread
from time import monotonic
from typing import Any, Final

import torch

from delegatekit.plugins import described, get_backend
from delegatekit.plugins.apart import RuntimeDiedError
from delegatekit.plugins.apart.child import START, Child, using
from delegatekit.plugins.apart.memory import Arena, write_pieces
from delegatekit_api import DelegateKitError, FormatError, OptionError, RuntimeUnavailableError
from delegatekit_toolkit.json_text import plain

from . import wire as messages
from .addresses import Certificates, is_loopback, keep_alive
from .desk import Desk, Lease
from .wire import (
    Available,
    ClosedError,
    Destroy,
    Execute,
    Failure,
    Frame,
    Hello,
    Init,
    Welcome,
    Wire,
    extent,
    is_shape,
    message,
    specs,
)

_LOG: Final = logging.getLogger(__package__)
#: Seconds for a connection to say who it is, connections at a time, and delegates of one.
_PATIENCE: Final = 10.0
_MOST: Final = 64
_DELEGATES: Final = 10_000
_REQUESTS: Final[Mapping[str, Any]] = {
    "available": Available,
    "init": Init,
    "execute": Execute,
    "profile": Execute,
    "destroy": Destroy,
}


@dataclass(frozen=True)
class Board:
    """A board and its limits."""

    #: An installed backend.
    backend: str
    #: The name for people.
    name: str
    #: Bytes of a message, and of the tensors of a delegate.
    limit: int = messages.LARGEST
    #: Seconds that a request may take: then the runtime's process is ended.
    time_limit: float = 120.0
    #: Seconds without a request after which a connection is closed.
    idle: float = 600.0


@dataclass
class _Loaded:
    """A delegate in the runtime's process."""

    number: int
    child: Child
    arena: Arena
    shapes: list[torch.Size]


class Server:
    """Serves a board until it is closed."""

    def __init__(self, board: Board, host: str, port: int, certificates: Certificates | None) -> None:
        """Listen; port 0 is a free one. Raises OptionError, PluginError, and RuntimeUnavailableError."""
        self._backend = get_backend(board.backend)
        if self._backend.is_library:
            raise RuntimeUnavailableError(
                "brings operators, whose kernels run with the file", where=f"backend {board.backend}"
            )
        if certificates is None and not is_loopback(host):
            raise OptionError(
                f"{host} can be reached from other machines: without certificates only this machine is served",
                hint="--cert, --key and --ca; `delegatekit lab certificates FOLDER` makes them",
            )
        self._context = None if certificates is None else certificates.context(server=True)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise OptionError(f"cannot listen: {error}", where=f"{host}:{port}") from error
        self._socket.settimeout(1.0)
        self.board = board
        #: Where it listens.
        self.port: int = self._socket.getsockname()[1]
        self._desk = Desk(board.name, ended=self._ended)
        self._free = BoundedSemaphore(_MOST)
        self._closed = Event()

    def serve(self) -> None:
        """Serve until `close`."""
        while not self._closed.is_set():
            try:
                connection, peer = self._socket.accept()
            except TimeoutError:
                self._desk.tell()  # ends what is over
                continue
            except OSError:
                if self._closed.is_set():
                    return
                continue
            if not self._free.acquire(blocking=False):
                _LOG.warning("refused %s: %d connections are the most", peer[0], _MOST)
                connection.close()
                continue
            Thread(target=self._serve, args=(connection, f"{peer[0]}:{peer[1]}"), daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._closed.set()
        self._socket.close()

    def _serve(self, plain_socket: socket.socket, peer: str) -> None:
        try:
            wire, person = self._greeted(plain_socket, peer)
        except (OSError, ssl.SSLError) as error:
            _LOG.warning("refused %s: %s", peer, messages.said(error))
            plain_socket.close()
            self._free.release()
            return
        try:
            self._talk(wire, person)
        except ClosedError as error:
            _LOG.info("%s %s", peer, error)
        except TimeoutError:
            _LOG.info("%s was silent for too long: closed", peer)
        except DelegateKitError as error:
            _LOG.warning("refused %s: %s", peer, error)
            with suppress(ClosedError):
                wire.send({"error": described(error)})
                wire.close_after_words()
        except Exception:
            _LOG.exception("%s: a fault of the server", peer)
        finally:
            wire.close()
            self._free.release()

    def _greeted(self, connection: socket.socket, peer: str) -> tuple[Wire, str]:
        """The connection, encrypted, and the name in the other side's certificate."""
        connection.settimeout(_PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(connection)
        if self._context is None:
            return Wire(connection, peer, limit=self.board.limit), ""
        secure = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        try:
            secure.do_handshake()
        except OSError:
            messages.drain(secure)
            secure.close()
            raise
        subject: Any = (secure.getpeercert() or {}).get("subject", ())
        names = [value for part in subject for key, value in part if key == "commonName"]
        return Wire(secure, peer, limit=self.board.limit), names[0] if names else "nameless"

    def _talk(self, wire: Wire, person: str) -> None:
        first = message(Hello, wire.receive(monotonic() + _PATIENCE).header, wire.where)
        user = f"{person} ({first.user})" if person else first.user
        key = (person, first.lease)
        if first.do == "status":
            wire.send(asdict(self._welcome()))
        elif first.do == "reserve":
            lease = self._desk.reserve(key, user, first.seconds, first.wait)
            _LOG.info("reserved by %s", lease)
            wire.send(asdict(self._welcome()))
        elif first.do == "release":
            self._desk.release(key)
            _LOG.info("released by %s", user)
            wire.send(asdict(self._welcome()))
        elif first.do == "use":
            self._check(first, wire)
            with self._desk.place(key, user, first.wait) as lease:
                _LOG.info("%s is used by %s", wire.where, user)
                wire.send(asdict(self._welcome()))
                Session(self.board, wire, lease).serve()
        else:
            raise FormatError(f"wants {first.do!r}, which no board does", where=wire.where)

    def _check(self, first: Hello, wire: Wire) -> None:
        served = (self.board.backend, self._backend.distribution)
        if (first.backend, first.distribution) != served:
            raise RuntimeUnavailableError(
                f"serves backend {served[0]} ({served[1]}), not {first.backend} ({first.distribution})",
                where=self.board.name,
                hint=f"--device {self.board.backend}=ADDRESS is for this backend alone",
            )

    def _welcome(self) -> Welcome:
        holder, waiting = self._desk.tell()
        board = self.board
        return Welcome(board.name, board.backend, self._backend.version, board.time_limit, holder, waiting)

    def _ended(self, lease: Lease) -> None:
        """End the runtime's process of a user, which may take seconds."""
        child = lease.kept.pop("child", None)
        if child is not None:
            Thread(target=child.close, daemon=True).start()


class Session:
    """One connection: its delegates, and its requests to the runtime's process."""

    def __init__(self, board: Board, wire: Wire, lease: Lease) -> None:
        self._board, self._wire, self._lease = board, wire, lease
        self._loaded: dict[int, _Loaded] = {}

    def serve(self) -> None:
        """Answer requests until the other side, or the runtime's process, ends."""
        try:
            while True:
                frame = self._wire.receive(monotonic() + self._board.idle)
                do = frame.header.get("do")
                if not isinstance(do, str) or do not in _REQUESTS:
                    raise FormatError(f"wants {do!r}, which no board does", where=self._wire.where)
                asked = message(_REQUESTS[do], frame.header, self._wire.where)
                try:
                    answer, pieces = self.answer(do, asked, frame)
                except RuntimeDiedError as death:
                    _LOG.warning("%s: the runtime's process %s", self._wire.where, death)
                    self._wire.send({"died": str(death)})
                    return
                except ClosedError:
                    raise
                except Exception as error:
                    _LOG.info("%s: %s failed: %s", self._wire.where, do, error)
                    answer, pieces = {"error": described(error)}, ()
                self._wire.send(answer, pieces)
        finally:
            self._release()

    def answer(self, do: str, asked: Any, frame: Frame) -> tuple[Mapping[str, Any], Sequence[Any]]:
        """The answer to a request. Raises what the runtime raises, RuntimeDiedError, and errors about the request."""
        seconds = self._board.time_limit if asked.seconds is None else min(asked.seconds, self._board.time_limit)
        deadline = monotonic() + seconds
        with using(self._lease, partial(Child, self._board.backend)) as child:
            self._lease.kept["child"] = child
            if isinstance(asked, Init):
                return self._init(asked, frame.pieces, child, deadline)
            if isinstance(asked, Execute):
                return self._execute(do, asked, frame.pieces, child, deadline)
            if isinstance(asked, Destroy):
                loaded = self._loaded.pop(asked.handle, None)
                if loaded is not None and loaded.child is child:
                    child.ask({"do": "destroy", "handle": loaded.number}, (), deadline)
                return {}, ()
            found = child.ask({"do": "available"}, (), monotonic() + START)
            return {"available": bool(found["available"]), "reason": str(found["reason"])}, ()

    def _init(
        self, asked: Init, pieces: Sequence[memoryview], child: Child, deadline: float
    ) -> tuple[Mapping[str, Any], Sequence[Any]]:
        where = self._wire.where
        inputs, outputs = (specs(given, where, limit=self._board.limit) for given in (asked.inputs, asked.outputs))
        if len(pieces) != 1 + len(asked.keys) or not 0 <= asked.gap <= 1 << 20 or len(self._loaded) >= _DELEGATES:
            raise FormatError("describes a delegate that cannot be", where=where)
        number = child.new_number()
        try:
            arena = Arena(inputs, outputs, asked.gap, None)
            file, places = write_pieces(pieces)
        except (OSError, MemoryError) as error:
            raise RuntimeUnavailableError(f"there is no memory for it: {error}", where=self._board.name) from error
        request = {
            **asdict(replace(asked, handle=number)),
            "do": "init",
            "places": places,
            "inputs": plain(inputs),
            "outputs": plain(outputs),
        }
        try:
            child.ask(request, (file, arena.file), deadline, self._give)
        finally:
            os.close(file)
            arena.close_file()
        shapes = [slot.largest for slot in (*arena.inputs, *arena.outputs)]
        self._loaded[asked.handle] = _Loaded(number, child, arena, shapes)
        return {}, ()

    def _give(self, wanted: Mapping[str, Any]) -> Any:
        """Bytes that the runtime asks for, from the user."""
        self._wire.send({name: wanted[name] for name in ("ask", "key", "keys") if name in wanted})
        frame = self._wire.receive(monotonic() + messages.STALL)
        if "error" in frame.header:
            raise message(Failure, frame.header["error"], self._wire.where).error()
        if len(frame.pieces) != 1:
            raise FormatError(f"sent {len(frame.pieces)} pieces of data, not one", where=self._wire.where)
        return frame.pieces[0]

    def _execute(
        self, do: str, asked: Execute, pieces: Sequence[memoryview], child: Child, deadline: float
    ) -> tuple[Mapping[str, Any], Sequence[Any]]:
        loaded = self._loaded.get(asked.handle)
        if loaded is None:
            raise FormatError(f"has no delegate {asked.handle} here", where=self._wire.where)
        if loaded.child is not child:
            raise RuntimeDiedError("has ended since the last call")
        arena, request = loaded.arena, {"do": do, "handle": loaded.number}
        slots = (*arena.inputs, *arena.outputs)
        if asked.shapes is not None:
            fit = len(asked.shapes) == len(slots) and all(map(is_shape, asked.shapes))
            shapes = [torch.Size(shape) for shape in asked.shapes]
            if not fit or any(shape.numel() > slot.capacity for slot, shape in zip(slots, shapes, strict=True)):
                raise FormatError("sent tensors that are larger than the delegate's", where=self._wire.where)
            loaded.shapes, request["shapes"] = shapes, shapes
        sizes = [shape.numel() * slot.dtype.itemsize for slot, shape in zip(slots, loaded.shapes, strict=True)]
        if [len(piece) for piece in pieces] != sizes[: len(arena.inputs)]:
            raise FormatError("sent inputs with other bytes than their sizes have", where=self._wire.where)
        for slot, piece in zip(arena.inputs, pieces, strict=True):
            slot.memory[: len(piece)] = piece
        found = child.ask(request, (), deadline, self._give)
        changed = {index: (shape, strides) for index, shape, strides in found.get("changed", ())}
        answers = []
        for index, (slot, size) in enumerate(zip(arena.outputs, sizes[len(arena.inputs) :], strict=True)):
            used = extent(*changed[index]) * slot.dtype.itemsize if index in changed else size
            answers.append(slot.memory[:used])
        return {key: found[key] for key in ("changed", "operators") if key in found}, answers

    def _release(self) -> None:
        """Give up the delegates of this connection; the process stays for the user's others."""
        child = self._lease.kept.get("child")
        for loaded in self._loaded.values():
            if loaded.child is child and child.alive:
                with suppress(Exception):
                    child.destroy(loaded.number)
        self._loaded.clear()


def serve_in_thread(server: Server) -> Callable[[], None]:
    """Serve in a thread of this process; returns what ends it."""
    thread = Thread(target=server.serve, daemon=True)
    thread.start()
    return server.close
