"""Cases whose faults are exactly the ones named, for tests of the runner. They need no torch: workers start fast."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegatekit_conformance import stock
from delegatekit_conformance.cases import Case
from delegatekit_conformance.context import Context
from delegatekit_conformance.outcome import Outcome, Verdict


@dataclass(frozen=True)
class Toy(Case):
    """Tries the numbers from 0 to `count` - 1; `action` gets the number and the folder of the test."""

    name: str
    action: Callable[[int, Path], Outcome | None]
    count: int = 5
    seconds: float = 1.0
    #: Further numbers, unless the first ones settle the case.
    more: int = 0
    settled: bool = False

    @property
    def cost(self) -> float:
        return self.seconds

    def examples(self, context: Context) -> Sequence[int]:
        if self.name == "toys/draw":
            os._exit(9)
        if self.name == "toys/no examples":
            raise ValueError("nothing to draw from")
        if self.name == "toys/down":
            return [4]
        if self.name == "toys/asks" and (reason := stock.no_process()):
            raise ValueError(reason)
        return range(self.count)

    def further(self, first: Sequence[int], context: Context) -> Sequence[int]:
        return range(self.count, self.count + self.more)

    def is_settled(self, tried: Sequence[Outcome], context: Context) -> bool:
        return self.settled and all(outcome.verdict is Verdict.DELEGATED for outcome in tried)

    def run(self, example: int, context: Context) -> Outcome:
        return self.action(example, Path(os.environ["TOYS"])) or Outcome(Verdict.DELEGATED, delegated_nodes=1)

    def snippet(self, example: int, context: Context) -> str:
        return f"try_number({example})"

    def shrink(self, example: int, fails: Callable[[Any], bool], context: Context) -> int:
        return next((number for number in range(example) if fails(number)), example)


def _at(number: int, action: Callable[[], object]) -> Callable[[int, Path], None]:
    """Does something at one number."""

    def act(example: int, _: Path) -> None:
        if example == number:
            action()

    return act


def _abort() -> None:
    os.write(2, b"noise " * 100_000 + b"the last words")
    os.kill(os.getpid(), signal.SIGABRT)


def _mismatch(example: int, _: Path) -> Outcome | None:
    return Outcome(Verdict.MISMATCH, f"{example} is wrong", blame="backend") if example >= 2 else None


def _both(example: int, folder: Path) -> Outcome | None:
    if example == 4:
        _abort()
    return _mismatch(example, folder)


def _once(example: int, folder: Path) -> Outcome | None:
    """Crashes the first time only."""
    if example == 1 and not (folder / "crashed").exists():
        (folder / "crashed").touch()
        os._exit(3)
    return None


def _spin() -> None:
    while True:
        pass


def _late(example: int, folder: Path) -> None:
    """Hangs the first time only."""
    if example == 1 and not (folder / "late").exists():
        (folder / "late").touch()
        _spin()


def _down(example: int, _: Path) -> None:
    if example >= 2:
        os._exit(10 + example)


def _meet(example: int, folder: Path, other: str, own: str) -> None:
    (folder / own).touch()
    while not (folder / other).exists():
        time.sleep(0.01)


def _child(example: int, folder: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    with (folder / "child").open("a") as file:
        file.write(f"{example}:{child.pid}\n")
    (folder / "worker").write_text(str(os.getpid()))
    if example == 0:
        time.sleep(100)


def _long(example: int, folder: Path) -> None:
    (folder / "worker").write_text(str(os.getpid()))
    (folder / "long").touch()
    time.sleep(100)


def _count(example: int, folder: Path) -> None:
    with (folder / "counted").open("a") as file:
        file.write(f"{os.getpid()}\n")


def _steady(example: int, folder: Path) -> None:
    """Takes a while, and records the begun example."""
    with (folder / "begun").open("a") as file:
        file.write(f"{os.getpid()}:{example}\n")
    (folder / "worker").write_text(str(os.getpid()))
    time.sleep(0.2)


def _held(example: int, folder: Path) -> None:
    """Records the begun example, and stops at number 1 until a worker was lost."""
    with (folder / "begun").open("a") as file:
        file.write(f"{os.getpid()}:{example}\n")
    while example and not (folder / "lost").exists():
        time.sleep(0.01)


def _grow(example: int, _: Path) -> Outcome | None:
    try:
        mmap.mmap(-1, 3 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        return Outcome(Verdict.RUN_ERROR, str(error), blame="backend")
    return None


def cases(context: Context) -> Mapping[str, Case]:
    """All toys."""
    toys = [
        Toy("toys/sound", lambda *_: None),
        Toy("toys/abort", _at(2, _abort)),
        Toy("toys/segfault", _at(4, lambda: ctypes.string_at(0)), seconds=2.0),
        Toy("toys/exit", _at(2, lambda: os._exit(3))),
        Toy("toys/silent", _at(4, lambda: os._exit(0))),
        Toy("toys/raise", _at(1, lambda: sys.exit("enough"))),
        Toy("toys/hang", _at(1, lambda: time.sleep(100))),
        Toy("toys/spin", _at(1, _spin)),
        Toy("toys/late", _late, count=3),
        Toy("toys/fatal", lambda *_: os._exit(5), count=7),
        Toy("toys/mismatch", _mismatch),
        Toy("toys/both", _both),
        Toy("toys/down", _down),
        Toy("toys/settled", lambda *_: None, more=3, settled=True),
        Toy("toys/further", _mismatch, count=3, more=3, settled=True),
        Toy("toys/further crash", _at(3, _abort), count=2, more=3),
        Toy("toys/crash before further", _at(1, _abort), count=2, more=3),
        Toy("toys/once", _once),
        Toy("toys/draw", lambda *_: None),
        Toy("toys/no examples", lambda *_: None),
        Toy("toys/asks", lambda *_: None),
        Toy("toys/child", _child, count=2),
        Toy("toys/long", _long, count=1, seconds=9.0),
        Toy("toys/grow", _grow, count=1),
        Toy("pair/a", lambda example, folder: _meet(example, folder, "b", "a"), count=1),
        Toy("pair/b", lambda example, folder: _meet(example, folder, "a", "b"), count=1),
        *(Toy(f"many/{number:02}", _count, count=1) for number in range(12)),
        *(Toy(f"steady/{number}", _steady, count=4) for number in range(6)),
        *(Toy(f"held/{number}", _held, count=4) for number in range(6)),
    ]
    return {toy.name: toy for toy in toys}
