"""Messages between two processes of a machine: JSON, with open files attached."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final

#: The header of a message: its size in bytes, and the number of attached files.
_HEADER: Final = struct.Struct("<QB")
#: Limit of files attached to one message.
_MOST_FILES: Final = 2
#: They are not inherited by child processes.
_FLAGS: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class GoneError(Exception):
    """The other side closed the connection."""


class Channel:
    """One end of a connection between two processes, for one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, message: Mapping[str, Any], files: Sequence[int] = ()) -> None:
        """Send a message and open files, which stay open here. Raises GoneError."""
        body = json.dumps(message, separators=(",", ":")).encode()
        data = memoryview(_HEADER.pack(len(body), len(files)) + body)
        self._socket.settimeout(None)
        try:
            sent = socket.send_fds(self._socket, [data], list(files)) if files else self._socket.send(data)
            if sent < len(data):
                self._socket.sendall(data[sent:])
        except OSError as error:
            raise GoneError from error

    def receive(self, deadline: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """The next message and the files that came with it, which are the caller's to close.

        Raises GoneError, and TimeoutError if it has not arrived by `deadline` (of `time.monotonic`).
        """
        files: list[int] = []
        try:
            self._wait(deadline)
            head, files, _, _ = socket.recv_fds(self._socket, _HEADER.size, _MOST_FILES, _FLAGS)
            if not head:
                raise GoneError
            length, _ = _HEADER.unpack(head + self._read(_HEADER.size - len(head), deadline))
            message = json.loads(self._read(length, deadline))
        except BaseException as error:
            for file in files:
                os.close(file)
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise GoneError from error
            raise
        return message, files

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _read(self, length: int, deadline: float | None) -> bytes:
        data = bytearray()
        while len(data) < length:
            self._wait(deadline)
            piece = self._socket.recv(length - len(data))
            if not piece:
                raise GoneError
            data += piece
        return bytes(data)

    def _wait(self, deadline: float | None) -> None:
        """Let the next read end at the deadline."""
        left = None if deadline is None else deadline - monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        if left != self._socket.gettimeout():
            self._socket.settimeout(left)
