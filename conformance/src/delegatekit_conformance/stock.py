"""The stock ExecuTorch runtime as a second judge, in a process that may die: files go in, outputs come out.

The process is forked from this one before a backend was used here, and waits for files. It never runs one itself but
in a child, which it replaces when that dies: so a delegate that ends the process costs an error, and nothing else.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Final, NoReturn

import torch

from delegatekit.plugins.discovery import get_backend
from delegatekit_api import ExecutionError
from delegatekit_toolkit.processes import signal_name

from .outcome import Outcome, Verdict

#: ExecuTorch's code of a program that calls an operator that the wheel has no kernel for.
_NO_KERNEL: Final = "0x14"
#: Seconds that loading a file or one call may take.
_PATIENCE: Final = 60.0


class StockError(ExecutionError):
    """The stock runtime refuses a file or fails on it; the message says how."""


class MissingKernel(StockError):  # noqa: N818
    """The wheel has no kernel for an operator outside the delegates: nothing can be judged."""


@cache
def binding() -> Any:
    """ExecuTorch's low-level binding. Raises ImportError without the wheel."""
    from executorch.extension.pybindings import _C

    return _C


@cache
def installed() -> frozenset[str] | None:
    """The delegate ids that the stock runtime can run in this process; None if it is not installed."""
    try:
        names = binding()._get_registered_backend_names()
        return frozenset(name for name in names if binding()._is_available(name))
    except ImportError:
        return None


def load(data: bytes, backends: Collection[str] = ()) -> Any:
    """The method "forward" of a file, in this process; call it with a tuple of inputs. The bytes must be kept.

    `backends` are the names of those that made its delegates.
    """
    for name in backends:
        # A delegate that stands on a vendor's library finds what the backend's own runtime loads when it is asked.
        get_backend(name).runtime_availability(apart=False)
    return binding()._load_program_from_buffer(data).load_method("forward")


@dataclass
class _Process:
    """The process, seen from here: `owner` is the process that may talk to it."""

    connection: Connection
    owner: int
    #: The delegate ids that it can run.
    known: frozenset[str]
    #: The child that runs files now.
    child: int
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def ask(self, *request: Any) -> Any:
        """The answer to a request. Raises StockError, also if the child dies of it or takes too long."""
        number = next(self.numbers)
        self.connection.send_bytes(pickle.dumps((number, *request)))
        late = False
        while True:
            if not late and not self.connection.poll(_PATIENCE):
                late = True
                os.kill(self.child, signal.SIGKILL)
            kind, *content = pickle.loads(self.connection.recv_bytes())
            if kind == "new":
                self.child, how = content
                raise StockError(f"no end within {_PATIENCE:.0f} s" if late else f"the process ended with {how}")
            found, fault, answer = content
            if found == number and fault:
                raise (MissingKernel if _NO_KERNEL in fault else StockError)(fault)
            if found == number:
                return answer


#: The process, once there is one.
_started: list[_Process] = []


def start() -> None:
    """Start the process if there is none. Call it before a backend was used: what has threads must not be forked."""
    if _started or find_spec("executorch") is None or not hasattr(os, "fork"):
        return
    here, there = Pipe()
    if not os.fork():
        here.close()
        _nursery(there)
    there.close()
    try:
        _, ids, child = pickle.loads(here.recv_bytes())
    except EOFError:
        ids, child = frozenset(), 0
    _started.append(_Process(here, os.getpid(), ids, child))


def runs(identifiers: Collection[str]) -> bool:
    """Whether the process can run delegates of all these ids; `start` was called before."""
    return any(
        process.owner == os.getpid() and process.known and process.known.issuperset(identifiers) for process in _started
    )


class StockMethod:
    """The method "forward" of a file, loaded in the process. Raises StockError."""

    def __init__(self, data: bytes, backends: Collection[str] = ()) -> None:
        (self._process,) = _started
        self._process.ask("load", (data, tuple(backends)))

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of one call. Raises StockError."""
        dense = tuple(value.detach().contiguous() if isinstance(value, torch.Tensor) else value for value in inputs)
        return list(self._process.ask("run", dense))


def second_opinion(outcome: Outcome, judged: Outcome) -> Outcome:
    """An outcome that is right here, with what became of it in the stock runtime."""
    if not judged.verdict.is_fault:
        return Outcome(**{**vars(outcome), "stock": "right"})
    words = f"in the stock runtime: {judged.verdict.value}: {judged.detail}"
    changes = {"verdict": Verdict.STOCK, "detail": words, "stock": "wrong", "error": judged.error}
    return Outcome(**{**vars(outcome), **changes, "tolerance": judged.tolerance})


# The other process


def _nursery(connection: Connection) -> NoReturn:
    """Have one child after the other answer requests; the last one ends when nobody asks any more."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        ids = installed() or frozenset()
        first, how = True, ""
        while True:
            child = os.fork()
            if not child:
                code = _serve(connection)
                break
            connection.send_bytes(pickle.dumps(("hello", ids, child) if first else ("new", child, how)))
            first = False
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if not status:
                code = 0
                break
            how = signal_name(-status) if status < 0 else f"exit code {status}"
    finally:
        os._exit(code)


def _serve(connection: Connection) -> int:
    """Answer requests until there are no more; 0 then."""
    torch.set_num_threads(1)
    with suppress(Exception):
        binding()._unsafe_reset_threadpool(1)
    kept: list[Any] = []
    while True:
        try:
            number, kind, content = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return 0
        answer, fault = None, ""
        try:
            if kind == "load":
                # The last file's delegates end first: some are known by their content, and end with their like.
                while kept:
                    kept.pop()
                kept[:] = [content, load(*content)]
            else:
                answer = list(kept[1](content))
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        connection.send_bytes(pickle.dumps(("answer", number, fault, answer)))
