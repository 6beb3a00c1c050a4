"""The protocol between a user's process and a board's server: frames of JSON and bytes, checked when they arrive.

A frame is a head (`_HEAD`: four letters, the version of the protocol, bytes of the header, bytes of the body), a header
(a JSON object) and a body: the pieces whose sizes the header's "pieces" has, one after the other. Nothing is unpickled.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from time import monotonic
from typing import Any, Final, TypeVar

import torch

from delegatekit.plugins import restored
from delegatekit_api import FormatError, TensorSpec
from delegatekit_toolkit.json_text import decoded, parse_object, to_json

VERSION: Final = 1
_LETTERS: Final = b"DKLB"
_HEAD: Final = struct.Struct("<4sHIQ")
#: Limits of a header and, unless a side sets another, of a body in bytes.
_LARGEST_HEADER: Final = 4 << 20
LARGEST: Final = 1 << 30
#: Bytes that are read at a time: a claimed length allocates nothing.
_STEP: Final = 1 << 20
#: Seconds after which the rest of a frame that was begun must have made progress.
STALL: Final = 30.0
#: Axes of a tensor, and largest size of one.
_AXES: Final = 64
_SIZE: Final = 1 << 48

_T = TypeVar("_T")


class ClosedError(Exception):
    """The other side closed the connection, or it broke; the text says how."""


@dataclass(frozen=True)
class Frame:
    """A message with its pieces."""

    header: Mapping[str, Any]
    pieces: tuple[memoryview, ...] = ()


class Wire:
    """One end of a connection, for one thread at a time."""

    def __init__(self, connection: socket.socket, where: str, *, limit: int = LARGEST) -> None:
        """`where` is the other side, for errors; `limit` is that of a body that is received, in bytes."""
        self._socket = connection
        self._limit = limit
        self.where = where

    def send(self, header: Mapping[str, Any], pieces: Sequence[Any] = ()) -> None:
        """Send a message and bytes-like pieces. Raises ClosedError."""
        views = [memoryview(piece).cast("B") for piece in pieces]
        sizes = [len(view) for view in views]
        text = to_json({**header, "pieces": sizes}, indent=None).encode()
        try:
            self._socket.settimeout(STALL)
            self._socket.sendall(_HEAD.pack(_LETTERS, VERSION, len(text), sum(sizes)) + text)
            for view in views:
                self._socket.sendall(view)
        except OSError as error:
            raise ClosedError(said(error)) from error

    def receive(self, deadline: float | None = None) -> Frame:
        """The next message, which begins until `deadline` (of `time.monotonic`; None: whenever it does).

        Raises ClosedError; TimeoutError; FormatError for anything but a message within the limits, after which the
        connection cannot be used.
        """
        head = self._read(_HEAD.size, deadline)
        letters, version, length, body = _HEAD.unpack(head)
        if letters != _LETTERS:
            raise self._wrong(f"does not speak DelegateKit's protocol: it begins with {bytes(head[:16])!r}")
        if version != VERSION:
            hint = "install the same version of delegatekit-lab on both sides"
            raise self._wrong(f"speaks version {version} of the protocol, this side version {VERSION}", hint)
        if length > _LARGEST_HEADER or body > self._limit:
            much, most = (length, _LARGEST_HEADER) if length > _LARGEST_HEADER else (body, self._limit)
            raise self._wrong(
                f"announces {much:,} bytes, {most:,} are the most", "serve-device --limit-bytes sets the limit"
            )
        header = parse_object(memoryview(self._read(length, None, begun=True)), self.where)
        sizes = decoded(tuple[int, ...], header.pop("pieces", ()), self.where, what="sent a message with wrong pieces")
        if min(sizes, default=0) < 0 or sum(sizes) != body:
            raise self._wrong(f"announces pieces of {sum(sizes)} bytes in a body of {body}")
        whole = memoryview(self._read(body, None, begun=True))
        pieces = (whole[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True))
        return Frame(header, tuple(pieces))

    @property
    def is_over(self) -> bool:
        """True if the other side has closed the connection, or says something unasked; between two requests."""
        try:
            return bool(select.select([self._socket], [], [], 0)[0])
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def close_after_words(self) -> None:
        """Close this end when the other has read what was sent last: else the system may throw that away."""
        drain(self._socket)
        self._socket.close()

    def _read(self, length: int, deadline: float | None, *, begun: bool = False) -> bytearray:
        data = bytearray()
        while len(data) < length:
            if begun or data:
                seconds: float | None = STALL
            else:
                seconds = None if deadline is None else max(deadline - monotonic(), 0.001)
            try:
                self._socket.settimeout(seconds)
                piece = self._socket.recv(min(length - len(data), _STEP))
            except TimeoutError:
                if not begun and not data:
                    raise
                raise self._wrong(f"stopped in the middle of a message, for {STALL:g} s") from None
            except OSError as error:
                raise ClosedError(said(error)) from error
            if not piece:
                if begun or data:
                    raise self._wrong(
                        f"closed the connection in the middle of a message, {length - len(data):,} bytes short"
                    )
                raise ClosedError("closed the connection")
            data += piece
        return data

    def _wrong(self, what: str, hint: str | None = None) -> FormatError:
        return FormatError(what, where=self.where, hint=hint)


def drain(connection: socket.socket) -> None:
    """Say that nothing more comes, and read what the other side still sends, for a second."""
    end = monotonic() + 1.0
    try:
        connection.shutdown(socket.SHUT_WR)
        while (left := end - monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv(_STEP):
                return
    except (OSError, ValueError):
        return


def said(error: OSError) -> str:
    """An error of a connection in words."""
    text = str(getattr(error, "strerror", None) or error)
    # What TLS calls the other side's refusal.
    for alert, words in _ALERTS.items():
        if alert in text.lower().replace("_", " "):
            return words
    return text or type(error).__name__


_ALERTS: Final = {
    "certificate required": "the other side wants a certificate (--cert, --key, or DELEGATEKIT_LAB_CERT and _KEY)",
    "alert unknown ca": "the other side does not know the CA that signed this side's certificate",
    "unable to get local issuer": "its certificate is not signed by the CA given here",
    "self-signed certificate": "its certificate is not signed by the CA given here",
    "self signed certificate": "its certificate is not signed by the CA given here",
    "peer did not return a certificate": "it has no certificate",
    "wrong version number": "it does not speak TLS",
    "unexpected eof": "closed the connection",
    "certificate has expired": "its certificate has expired",
    "alert certificate expired": "this side's certificate has expired",
    "alert bad certificate": "the other side does not take this side's certificate",
    "http request": "it does not speak TLS",
}


# -- messages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spec:
    """A `TensorSpec` on the wire."""

    dtype: str
    shape: tuple[int, ...]
    dynamic: bool = False
    dim_order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Hello:
    """The first message of a user: who wants which backend. `do`: "use", or "status", "reserve" or "release"."""

    do: str
    backend: str = ""
    distribution: str = ""
    version: str = ""
    #: The user's name for people, and the secret that all processes of one user have in common.
    user: str = ""
    lease: str = ""
    #: Seconds to wait while another user has the board, and seconds of a reservation.
    wait: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Welcome:
    """The server's first answer."""

    board: str
    backend: str
    version: str
    #: Seconds that a request may take.
    time_limit: float
    #: The holder of the board and until when, in words; empty: it is free.
    holder: str = ""
    waiting: int = 0


@dataclass(frozen=True)
class Init:
    """Load a delegate: the blob and the values of the compile specs are pieces."""

    handle: int
    delegate_id: str
    keys: tuple[str, ...]
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    numbers: tuple[int, ...]
    method: str
    named: tuple[str, ...]
    gap: int
    seconds: float | None = None


@dataclass(frozen=True)
class Execute:
    """Run a delegate: the bytes of the inputs are pieces. Shapes of inputs and outputs, if they have changed."""

    handle: int
    shapes: tuple[tuple[int, ...], ...] | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Destroy:
    """Release a delegate."""

    handle: int
    seconds: float | None = None


@dataclass(frozen=True)
class Available:
    """Ask the runtime whether it works."""

    seconds: float | None = None


@dataclass(frozen=True)
class Ask:
    """What the server asks in return, while a request is running."""

    ask: str
    key: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """An answer; outputs' bytes are pieces."""

    available: bool | None = None
    reason: str = ""
    #: Outputs with other sizes or strides than were asked for: index, sizes, strides.
    changed: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...] = ()
    operators: tuple[tuple[str, float, int | str | None], ...] | None = None


@dataclass(frozen=True)
class Failure:
    """An error: of a class and with parts or text, see `delegatekit.plugins.described`."""

    kinds: tuple[str, ...]
    what: str | None = None
    where: str | None = None
    hint: str | None = None
    fault: str | None = None

    def error(self) -> Exception:
        """The error."""
        parts: dict[str, Any] = {"kinds": self.kinds}
        parts |= (
            {"fault": self.fault} if self.what is None else {"what": self.what, "where": self.where, "hint": self.hint}
        )
        return restored(parts)


def message(kind: type[_T], header: Mapping[str, Any], where: str) -> _T:
    """A header as a message. Raises FormatError."""
    values = {key: value for key, value in header.items() if key != "do" or kind is Hello}
    return decoded(kind, values, where, what=f"sent a wrong message {kind.__name__.lower()}")


def specs(given: Sequence[Spec], where: str, *, limit: int) -> tuple[TensorSpec, ...]:
    """Tensors' specs. Raises FormatError for an unknown dtype, impossible sizes, or more bytes than the limit."""
    total = 0
    for spec in given:
        dtype = getattr(torch, spec.dtype, None)
        order = sorted(spec.dim_order) in ([], list(range(len(spec.shape))))
        if not isinstance(dtype, torch.dtype) or not is_shape(spec.shape) or not order:
            raise FormatError(f"describes a tensor that cannot be: {spec.dtype} {list(spec.shape)}", where=where)
        total += prod(spec.shape) * dtype.itemsize
    if total > limit:
        raise FormatError(f"describes tensors of {total:,} bytes, {limit:,} are the most", where=where)
    return tuple(TensorSpec(spec.dtype, spec.shape, spec.dynamic, spec.dim_order) for spec in given)


def is_shape(shape: Sequence[int]) -> bool:
    """True for sizes that a tensor can have."""
    return len(shape) <= _AXES and all(0 <= size <= _SIZE for size in shape)


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The elements from the first to the last of a tensor in memory."""
    return 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
