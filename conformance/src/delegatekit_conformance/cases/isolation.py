"""Removes the network from this process and its child processes, and counts their attempts to use it (Linux).

A network namespace of its own has only a loopback device: packets to elsewhere find no route, and the system
counts them, for any language. For use in a fresh process that has one thread.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
#: Request that sets flags of a network device (linux/sockios.h), the flag "up", and a device's name before its flags.
_SET_FLAGS, _UP, _REQUEST = 0x8914, 1, struct.Struct("16sH22x")
#: The system's counters, for the namespace of the reading process, by file and name.
_COUNTERS = (("/proc/self/net/snmp", "OutNoRoutes"), ("/proc/self/net/snmp6", "Ip6OutNoRoutes"))


def isolate() -> bool:
    """Leave the network. False, with everything as before, where the system does not allow that."""
    if not sys.platform.startswith("linux"):
        return False
    child = os.fork()  # tries it: a partial isolation cannot be undone
    if not child:
        code = 1
        try:
            _leave()
            code = 0
        finally:
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        return False
    _leave()
    return True


def attempts() -> int:
    """The number of packets without a route since the network was left."""
    return sum(number for path, name in _COUNTERS for number in _counts(Path(path), name))


def _leave() -> None:
    import fcntl  # Windows has none

    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if library.unshare(_NEW_NET):
        if library.unshare(_NEW_USER | _NEW_NET):
            raise OSError(ctypes.get_errno(), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket() as any_socket:  # a backend may talk to a process of its own
        fcntl.ioctl(any_socket, _SET_FLAGS, _REQUEST.pack(b"lo", _UP))


def _counts(path: Path, name: str) -> Iterator[int]:
    """The numbers of this name: in the columns of pairs of lines, or one on each line after its name."""
    if not path.exists():
        return
    rows = [line.split() for line in path.read_text().splitlines()]
    for number, row in enumerate(rows):
        if row[0] == name:
            yield int(row[1])
        elif row[0] == "Ip:" and name in row:
            yield int(rows[number + 1][row.index(name)])
            return
