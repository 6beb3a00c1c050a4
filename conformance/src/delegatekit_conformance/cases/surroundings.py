"""Watches what a backend changes in its process: each hook, and each method of their results, is called between two
looks at the settings of the process. Changes are undone, so that examples are independent.
"""

from __future__ import annotations

import ctypes
import gc
import locale
import logging
import os
import random
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from weakref import WeakSet

import torch

from delegatekit.plugins import LoadedBackend, discovery

_TINY: Final = sys.float_info.min
_SIGNALS: Final = tuple(
    number
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGCHLD", "SIGPIPE", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGABRT")
    if (number := getattr(signal, name, None)) is not None
)


def _nothing(value: Any) -> None:
    """Not restored."""


@dataclass(frozen=True)
class Probe:
    """One setting of a process."""

    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], Any] = _nothing
    #: True if a module may change it while it is imported: packages register their warnings and folders then.
    at_import: bool = False


def _put_back(sequence: list[Any], before: tuple[Any, ...]) -> None:
    sequence[:] = before


def _set_signals(before: tuple[Any, ...]) -> None:
    for number, handler in zip(_SIGNALS, before, strict=True):
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _environment() -> Mapping[Any, Any]:
    return getattr(os.environ, "_data", os.environ).copy()  # its decoding copy takes longer


def _set_environment(before: Mapping[Any, Any]) -> None:
    names = {os.fsdecode(name): os.fsdecode(value) for name, value in before.items()}
    for name in set(os.environ) - set(names):
        del os.environ[name]
    os.environ.update(names)


def _set_logger(before: tuple[int, tuple[logging.Handler, ...]]) -> None:
    logging.root.setLevel(before[0])
    logging.root.handlers[:] = before[1]


def _numpy() -> Any:
    """numpy, if something has imported it: the suite does not need it."""
    return sys.modules.get("numpy")


@cache
def _numpy_generator() -> tuple[int, int]:
    """Address and bytes of the state of numpy's Mersenne Twister: `get_state` is slower than all other probes."""
    generator = _numpy().random.get_bit_generator()
    return generator.ctypes.state_address, 624 * 4 + 4


def _numpy_state() -> bytes:
    return ctypes.string_at(*_numpy_generator()) if _numpy() else b""


def _set_numpy_state(before: bytes) -> None:
    if before:
        ctypes.memmove(_numpy_generator()[0], before, len(before))


def _numpy_errors() -> Mapping[str, str]:
    return _numpy().geterr() if _numpy() else {}


def _set_numpy_errors(before: Mapping[str, str]) -> None:
    if before:
        _numpy().seterr(**before)


def _torch_state() -> bytes:
    return torch.get_rng_state().numpy().tobytes()


def _set_torch_state(before: bytes) -> None:
    torch.set_rng_state(torch.frombuffer(bytearray(before), dtype=torch.uint8))


def _set_gradients(before: bool) -> None:
    torch.set_grad_enabled(before)


PROBES: Final = (
    Probe("torch's gradients (on or off)", torch.is_grad_enabled, _set_gradients),
    Probe("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Probe("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
    Probe(
        "torch's deterministic algorithms (on or off)",
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    Probe(
        "torch's precision of float32 products",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    Probe("torch's random numbers", _torch_state, _set_torch_state),
    Probe("Python's random numbers", random.getstate, random.setstate),
    Probe("numpy's random numbers", _numpy_state, _set_numpy_state, at_import=True),
    Probe("numpy's handling of errors", _numpy_errors, _set_numpy_errors, at_import=True),
    Probe(
        "denormal numbers (zero or not)",
        lambda: _TINY * 0.5 == 0.0,
        torch.set_flush_denormal,
    ),
    Probe("environment variables", _environment, _set_environment, at_import=True),
    Probe("the working folder", os.getcwd, os.chdir),
    Probe("the mode of new files (umask)", _umask, os.umask),
    Probe("signal handlers", lambda: tuple(map(signal.getsignal, _SIGNALS)), _set_signals),
    Probe(
        "the locale", lambda: locale.setlocale(locale.LC_ALL), lambda before: locale.setlocale(locale.LC_ALL, before)
    ),
    Probe(
        "the filters of warnings",
        lambda: tuple(warnings.filters),
        lambda before: _put_back(warnings.filters, before),  # type: ignore[arg-type]
        at_import=True,
    ),
    Probe("the module path", lambda: tuple(sys.path), lambda before: _put_back(sys.path, before), at_import=True),
    Probe("Python's recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    Probe("Python's exception hook", lambda: sys.excepthook, lambda before: setattr(sys, "excepthook", before)),
    Probe("Python's garbage collector (on or off)", gc.isenabled, lambda before: (gc.disable, gc.enable)[before]()),
    Probe(
        "the root logger",
        lambda: (logging.root.level, tuple(logging.root.handlers)),
        _set_logger,
        at_import=True,
    ),
    Probe("the default timeout of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout),
)


@dataclass
class Watch:
    """Observations in this process."""

    #: In words, of the example that is being tried.
    changes: list[str] = field(default_factory=list)
    #: True if an example is being tried.
    active: bool = False
    #: Number of times that a hook left descriptors open: a cache that is opened once is no leak.
    _opened: dict[str, int] = field(default_factory=dict)

    def look(self) -> _Look | None:
        """The state of the process; None if not watching, or if another thread may change it at any time."""
        if not self.active or threading.current_thread() is not threading.main_thread() or threading.active_count() > 1:
            return None
        if _COLLECTING or _in_a_mode():
            return None  # a handle is destroyed by the garbage collector: torch may hold a lock, or be tracing
        return _Look(tuple(probe.read() for probe in PROBES), _free_descriptor(), len(sys.modules))

    def compare(self, before: _Look | None, where: str, *, keeps: bool = False) -> None:
        """Record changed settings, and restore them. With `keeps`, files may be held open from now on."""
        after = None if before is None else self.look()
        if before is None or after is None:
            return
        imported = after.modules != before.modules
        if after.states != before.states:
            for probe, old, new in zip(PROBES, before.states, after.states, strict=True):
                if old != new:
                    probe.restore(old)
                    if not (imported and probe.at_import):
                        self.changes.append(f"{where} changes {probe.name}{_shown(old, new)}")
        if after.free > before.free and not imported and not keeps:
            self._opened[where] = self._opened.get(where, 0) + 1
            if self._opened[where] > 1:
                self.changes.append(f"{where} leaves a file open each time")


@dataclass(frozen=True)
class _Look:
    states: tuple[Any, ...]
    free: int
    modules: int


def _free_descriptor() -> int:
    """The lowest number that is free: higher than before, if a file was opened and not closed."""
    try:
        number = os.dup(2)
    except OSError:
        return 0
    os.close(number)
    return number


def _shown(old: Any, new: Any) -> str:
    """Old and new value, if they are short."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        names = sorted(os.fsdecode(key) for key in {*old, *new} if old.get(key) != new.get(key))
        return f": {', '.join(names)}"
    text = f", from {old} to {new}"
    return text if len(text) < 80 else ""


def _in_a_mode() -> bool:
    modes: Any = torch._C
    return bool(modes._len_torch_dispatch_stack() or modes._len_torch_function_stack())


#: Not empty while the garbage collector runs, which may be at any point.
_COLLECTING: Final[list[str]] = []


def _note_collection(phase: str, info: Mapping[str, int]) -> None:
    if phase == "start":
        _COLLECTING.append(phase)
    else:
        _COLLECTING.clear()


gc.callbacks.append(_note_collection)

_WATCH: Final = Watch()
_KNOWN: Final[WeakSet[LoadedBackend]] = WeakSet()

#: Results of hooks -> their methods, and whether handles may keep files open from then on.
_MADE: Final[Mapping[str, Mapping[str, bool]]] = {
    "create_partitioner": {
        "keep_operators": False,
        "check": False,
        "propose": False,
        "float_reason": False,
        "state_reason": False,
        "constant_is_input": False,
        "plan_reason": False,
    },
    "create_runtime": {"is_available": False, "init": True, "execute": True, "profile": True, "destroy": False},
    "create_quantizer": {"annotate": False, "validate": False},
}


@contextmanager
def watched(name: str) -> Iterator[list[str]]:
    """Within the block, hooks of a backend are watched; their changes are in the list, in words."""
    with _loaded(name):
        _WATCH.changes, _WATCH.active = [], True
        try:
            yield _WATCH.changes
        finally:
            _WATCH.active = False


@contextmanager
def _loaded(name: str) -> Iterator[None]:
    """The backend's hooks report to the watch, if it can be loaded at all."""
    try:
        backend: LoadedBackend | None = discovery.get_backend(name)
    except Exception:  # the case reports what is wrong with it
        backend = None
    if backend is not None and backend not in _KNOWN:
        _KNOWN.add(backend)
        looks: list[_Look | None] = []

        def before(hook: str) -> None:
            looks.append(_WATCH.look())

        def after(hook: str, made: Any) -> None:
            _WATCH.compare(looks.pop(), hook, keeps=hook == "create_runtime")
            if made is not None and hook in _MADE:
                _watch_methods(made, hook)

        backend.watch(before, after)
    yield


def _watch_methods(made: Any, hook: str) -> None:
    """Have an object's methods report to the watch: it becomes one of a subclass of its own class."""
    kind: Any = type(made)
    if getattr(kind, "_watched", False):
        return
    try:
        names = tuple(name for name in _MADE[hook] if _has(made, name))
        object.__setattr__(made, "__class__", _watched_class(kind, hook, names))
    except TypeError:  # an object of native code
        return


def _has(made: Any, name: str) -> bool:
    """True if an object has a method; of one that forwards to another, that other decides which are optional."""
    try:
        return hasattr(made, name)
    except Exception:  # of a plugin's own __getattr__
        return False


@cache
def _watched_class(kind: Any, hook: str, names: tuple[str, ...]) -> type:
    members: dict[str, Any] = {"__slots__": (), "_watched": True, "__module__": kind.__module__}
    for name in names:
        members[name] = _method(kind, name, _MADE[hook][name])
    made = type(kind.__name__, (kind,), members)
    made.__qualname__ = kind.__qualname__
    return made


def _method(kind: type, name: str, keeps: bool) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = getattr(kind, name, None)
        call = kind.__getattr__(self, name) if own is None else own.__get__(self)  # type: ignore[attr-defined]
        before = _WATCH.look()
        try:
            return call(*args, **kwargs)
        finally:
            _WATCH.compare(before, name, keeps=keeps)

    method.__name__ = name
    return method
