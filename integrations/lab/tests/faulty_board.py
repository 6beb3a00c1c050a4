"""A board with a fault: hangs, reboots or lies from some call of a delegate on.

    python faulty_board.py BACKEND PORT NAME FAULT AFTER FOLDER

A board that hangs does so in one call. A board that reboots ends in the middle of a call, once: a file in the folder
says that it has.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import torch

from delegatekit_lab.server import Board, Server, Session

_CALLS = count()


def main(backend: str, port: str, name: str, fault: str, after: str, folder: str) -> None:
    true = Session.answer

    def answer(self: Session, do: str, asked: Any, frame: Any) -> Any:
        number = next(_CALLS) if do == "execute" else -1
        if number >= int(after):
            if fault == "hang" and number == int(after):
                time.sleep(3600)
            rebooted = Path(folder) / f"{name}.rebooted"
            if fault == "reboot" and not rebooted.exists():
                rebooted.touch()
                os._exit(1)
            if fault == "lie":
                told, pieces = true(self, do, asked, frame)
                return told, [_other(piece) for piece in pieces]
        return true(self, do, asked, frame)

    Session.answer = answer  # type: ignore[method-assign]
    Server(Board(backend, name, time_limit=8.0), "127.0.0.1", int(port), None).serve()


def _other(piece: memoryview) -> bytes:
    """Other bytes, most of which are other numbers in all dtypes."""
    return bytes(torch.frombuffer(bytearray(piece), dtype=torch.uint8).bitwise_xor(0x41).numpy()) if piece else b""


if __name__ == "__main__":
    main(*sys.argv[1:])
