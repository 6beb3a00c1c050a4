"""The stock ExecuTorch runtime as a second judge, in a process that may die: gets files, returns outputs.

The process is forked from this one before a backend was used here, and waits for files. It runs each
in a child, which it replaces when that dies: so a delegate that ends the process causes only an error.

Delegates that the wheel `executorch` does not have run by their plugins' runtimes there, where the package
delegatekit-executorch is installed: then the file and stock's own kernels are judged, and how both meet the delegate.
"""

from __future__ import annotations

import itertools
import os
import pickle
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Final, NoReturn

import torch

from delegatekit.plugins import LoadedBackend
from delegatekit.plugins.discovery import get_backend
from delegatekit_api import Availability, ExecutionError
from delegatekit_toolkit.capture import quiet
from delegatekit_toolkit.processes import signal_name
from delegatekit_tools.compare.running import coarsest_of

from .outcome import Outcome, Verdict

#: ExecuTorch's code of a program that calls an operator that the wheel has no kernel for.
_NO_KERNEL: Final = re.compile(r"\b0x:?14\b")
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
        return frozenset(name for name in registered() if binding()._is_available(name))
    except ImportError:
        return None


@cache
def registered() -> frozenset[str]:
    """The delegate ids that the stock runtime knows, whether it can run them or not. Raises ImportError without it."""
    return frozenset(binding()._get_registered_backend_names())


def load(data: bytes, backends: Collection[str] = ()) -> Any:
    """The method "forward" of a file, in this process; call it with a tuple of inputs. The bytes must be kept.

    `backends` are the names of those that made its delegates.
    """
    for name in backends:
        _prepare(name)
        if get_backend(name).description.delegate_id not in registered():
            _host()
    return binding()._load_program_from_buffer(data).load_method("forward")


def _prepare(name: str) -> Availability:
    """Ask a backend for its runtime: a delegate that needs a vendor's library finds what that loads."""
    return get_backend(name).runtime_availability(apart=False)


@dataclass
class _Process:
    """Handle of the process: `owner` is the process that may talk to it."""

    connection: Connection
    owner: int
    #: The wheel's error when it cannot be loaded; empty if it can.
    fault: str
    #: The delegate ids that it has.
    known: frozenset[str]
    #: Those of them that plugins' own runtimes run, and why there are none.
    hosted: frozenset[str]
    unhosted: str
    #: The child that runs files now.
    child: int
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    #: (delegate id, backend) -> why it cannot run the delegates of that backend; empty if it can.
    refusals: dict[tuple[str, str], str] = field(default_factory=dict)

    def refusal(self, identifier: str, backend: str) -> str:
        """Reason why it cannot run the delegates of a backend with this id; empty if it can. Asked once."""
        key = identifier, backend
        if key not in self.refusals:
            if identifier not in self.known:
                told = f", and {self.unhosted}" if self.unhosted else ""
                self.refusals[key] = f"the wheel executorch does not have the delegate {identifier}{told}"
            else:
                try:
                    self.refusals[key] = self.ask("ready", key)
                except StockError as error:
                    self.refusals[key] = f"the delegate {identifier} of the wheel executorch cannot be loaded: {error}"
        return self.refusals[key]

    def ask(self, *request: Any) -> Any:
        """The answer to a request. Raises StockError, also if the child dies or takes too long."""
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
                raise StockError(f"timed out after {_PATIENCE:.0f} s" if late else f"the process ended with {how}")
            found, fault, answer = content
            if found == number and fault:
                raise (MissingKernel if _NO_KERNEL.search(fault) else StockError)(fault)
            if found == number:
                return answer


#: The process, once there is one.
_started: list[_Process] = []


def start() -> None:
    """Start the process if there is none. Call it before a backend is used: threads make forking unsafe."""
    if _started or find_spec("executorch") is None or not hasattr(os, "fork"):
        return
    here, there = Pipe()
    if not os.fork():
        here.close()
        _nursery(there)
    there.close()
    try:
        _, (fault, ids, hosted, unhosted), child = pickle.loads(here.recv_bytes())
    except EOFError:
        fault, ids, hosted, unhosted, child = "it ended the process that imports it", frozenset(), frozenset(), "", 0
    _started.append(_Process(here, os.getpid(), fault, ids, hosted, unhosted, child))


def refusal(delegates: Mapping[str, str]) -> str:
    """Reason why the process cannot run these delegates (backend -> delegate id); empty if it can.

    `start` was called before.
    """
    reason, process = no_process(), _own()
    if reason or process is None:
        return reason
    told = (process.refusal(identifier, backend) for backend, identifier in delegates.items())
    return next(filter(None, told), "")


def hosts(delegate_ids: Iterable[str]) -> bool:
    """True if plugins' own runtimes run delegates of these ids in the process. `start` was called before."""
    process = _own()
    return process is not None and process.hosted.issuperset(delegate_ids)


def no_process() -> str:
    """Reason why there is no usable process; empty if there is one. `start` was called before."""
    if find_spec("executorch") is None:
        return "the wheel executorch is not installed: pip install 'delegatekit-conformance[stock]'"
    if not hasattr(os, "fork"):
        return "this system cannot fork the process that the stock runtime needs"
    process = _own()
    if process is None:
        return "the process of the stock runtime was not started here"
    return f"the wheel executorch cannot be loaded: {process.fault}" if process.fault else ""


def _own() -> _Process | None:
    """The process that was started from this one."""
    return next((process for process in _started if process.owner == os.getpid()), None)


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a module's function in the process: its output, imports and changes stay there.

    Function, arguments and result are pickled. Raises StockError for its exceptions, or if the process dies.
    """
    process = _own()
    if process is None:
        raise StockError(no_process())
    return process.ask("call", (function, arguments))


#: Ranks of tensors that may be in channels-last order.
_IMAGE, _VOLUME = 4, 5
#: Reasons not to run files in the stock runtime although it could.
OFF: Final = "switched off (--no-stock)"
STATIC: Final = "sizes change, which the runtime on the device does not take (device_dynamic_shapes)"
ORDER: Final = "the wheel executorch takes no inputs of rank 5 in channels-last order"
NO_KERNEL: Final = "the wheel executorch has no kernel for an operator outside the delegates"


def unjudged(outcome: Outcome, reason: str) -> Outcome:
    """The outcome with the reason why the stock runtime does not judge it, if the backend computed any of it."""
    if not reason or outcome.stock or outcome.verdict.is_fault or not outcome.delegates:
        return outcome
    return replace(outcome, unjudged=reason)


class StockMethod:
    """The method "forward" of a file, loaded in the process. Raises StockError."""

    def __init__(self, data: bytes, backends: Collection[str] = ()) -> None:
        (self._process,) = _started
        self._process.ask("load", (data, tuple(backends)))

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of one call. Raises StockError."""
        dense = tuple(_dense(value) if isinstance(value, torch.Tensor) else value for value in inputs)
        return list(self._process.ask("run", dense))


def takes(inputs: Iterable[Any]) -> bool:
    """True if the wheel's binding takes inputs in their order: images in channels-last order, no volumes."""
    volumes = (value for value in inputs if isinstance(value, torch.Tensor) and value.dim() == _VOLUME)
    return all(
        volume.is_contiguous() or not volume.is_contiguous(memory_format=torch.channels_last_3d) for volume in volumes
    )


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without gaps. An image in channels-last order stays so: its file was made for that order."""
    if tensor.dim() == _IMAGE and tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor.detach()
    return tensor.detach().contiguous()


def device_precision(backend: LoadedBackend, options: Mapping[str, Any] | None = None) -> str:
    """The lowest precision of a backend's runtime on the device: the described one, or that of the runtime here with
    these options where the description names none; where an option changes that, the coarser of the two.
    """
    here, device = backend.compute_precision(options), backend.description.device_compute_precision
    if not device:
        return here
    return device if here == backend.description.compute_precision else coarsest_of((here, device))


def second_opinion(outcome: Outcome, judged: Outcome, *, hosted: bool = False) -> Outcome:
    """An outcome that is right here, with the outcome in the stock runtime; `hosted`, if plugins ran the delegates."""
    if not judged.verdict.is_fault:
        return replace(outcome, stock="right", hosted=hosted)
    words = f"in the stock runtime: {judged.verdict.value}: {judged.detail}"
    found = replace(outcome, verdict=Verdict.STOCK, detail=words, stock="wrong", hosted=hosted)
    return replace(found, error=judged.error, tolerance=judged.tolerance)


# The other process


def _nursery(connection: Connection) -> NoReturn:
    """Have one child after the other answer requests; the last one ends when there are no more requests."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        known = _known()
        first, how = True, ""
        while True:
            child = os.fork()
            if not child:
                code = _serve(connection)
                break
            connection.send_bytes(pickle.dumps(("hello", known, child) if first else ("new", child, how)))
            first = False
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if not status:
                code = 0
                break
            how = signal_name(-status) if status < 0 else f"exit code {status}"
    finally:
        os._exit(code)


def _known() -> tuple[str, frozenset[str], frozenset[str], str]:
    """The wheel's error when it cannot be loaded; the delegate ids that it has; those that plugins run; why not."""
    try:
        own = registered()
    except Exception as error:
        return f"{type(error).__name__}: {error}", frozenset(), frozenset(), ""
    reason = _host()
    registered.cache_clear()
    return "", registered(), registered() - own, reason


@cache
def _host() -> str:
    """Have the plugins' runtimes run what the wheel has no delegate for; the reason if that cannot be, else empty."""
    if find_spec("delegatekit_executorch") is None:
        return "delegatekit-executorch, with which its plugin's runtime would run it there, is not installed"
    try:
        import_module("delegatekit_executorch.host").register()
    except Exception as error:
        return f"its plugin's runtime cannot run there: {error}"
    return ""


def _hosted_error() -> BaseException | None:
    """The last error of a delegate that a plugin ran here."""
    host = sys.modules.get("delegatekit_executorch.host")
    return host.last_error() if host is not None else None


def _ready(identifier: str, backend: str) -> str:
    """Reason why the delegate of a backend cannot run in this process; empty if it can."""
    lines: list[str] = []
    with quiet(descriptor=2, lines=lines):
        runtime = _prepare(backend)
        if binding()._is_available(identifier):
            return ""
    told = next((line.strip() for line in lines if line.strip()), "") or runtime.reason
    why = told or "it gives no reason; most look for a library of the vendor by an environment variable"
    return f"the wheel executorch has the delegate {identifier}, which says that it cannot run here: {why}"


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
        answer: Any = None
        fault = ""
        earlier = _hosted_error()
        try:
            if kind == "load":
                # The last file's delegates end first: some are keyed by their content, and end with their equals.
                while kept:
                    kept.pop()
                kept[:] = [content, load(*content)]
            elif kind == "ready":
                answer = _ready(*content)
            elif kind == "call":
                function, arguments = content
                answer = function(*arguments)
            else:
                answer = list(kept[1](content))
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
            told = _hosted_error()
            if told is not earlier and not _NO_KERNEL.search(fault):
                fault = f"{fault}: {told}"
        connection.send_bytes(pickle.dumps(("answer", number, fault, answer)))
