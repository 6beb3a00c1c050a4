"""The delegates that this process registered with ExecuTorch, and the functions that its runtime calls for them."""

from __future__ import annotations

import atexit
import ctypes
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final

from delegatekit.engine.delegate import PLUGINS
from delegatekit.plugins import ask_all, get_backend, warn
from delegatekit_api import DelegateKitError, PluginError, RuntimeUnavailableError

from ..native.library import AVAILABLE, DESTROY, EXECUTE, INIT, binding, library
from .delegates import Call, HostedDelegate
from .failures import failed

_WHERE: Final = "delegatekit_executorch.host"
#: ExecuTorch's code of a table of backends that is full, or has the name already.
_INTERNAL: Final = 0x01


@dataclass(frozen=True)
class Registered:
    """A delegate id that ExecuTorch's runtime gives to our plugins."""

    delegate_id: str
    #: The installed backends that have it. A file's own maker runs it, if the user named none (`register`).
    backends: tuple[str, ...]


_LOCK: Final = RLock()
#: Delegate id -> names of backends.
_REGISTERED: Final[dict[str, list[str]]] = {}
#: Names of the backends that the user named: they run the delegates of their ids, whoever made a file.
_CHOSEN: Final[list[str]] = []
#: The library's address of each living delegate.
_LIVING: Final[dict[int, HostedDelegate]] = {}
#: Delegate ids whose runtime is known to work here.
_AVAILABLE: Final[set[str]] = set()
#: Those that are being asked, by one thread at a time (`PLUGINS`).
_ASKED: Final[set[str]] = set()


def register(*backends: str) -> None:
    """Register the delegates of these backends with ExecuTorch's runtime, for this process; twice is harmless.

    Without names, those of all installed backends, as importing this package does. Named ones run the delegates of
    their ids from then on, whichever plugin made a file: to try another one, or to choose if a file names none and
    several can. A delegate that ExecuTorch's library has itself stays its own; its backend only loads what that looks
    for, such as the vendor's library.

    Raises PluginError for a backend that cannot be used, or has no runtime; RuntimeUnavailableError if the library, or
    what a delegate of ExecuTorch's looks for, cannot be loaded.
    """
    if not backends:
        register_all()
    for name in backends:
        backend = get_backend(name)
        identifier = _delegate_id(backend)
        if not identifier:
            raise PluginError("has no runtime: its files run on the device only", where=f"backend {name}")
        with _LOCK:
            if identifier in _known() - _REGISTERED.keys():
                found = backend.runtime_availability(apart=False)
                if not found.available:
                    raise RuntimeUnavailableError(found.reason, where=f"backend {name}")
                continue
            _register(identifier, name)
            if name not in _CHOSEN:
                _CHOSEN.append(name)


def register_all() -> None:
    """Register the delegates of all usable backends that have a runtime, less those of ExecuTorch's own library.

    Warns of backends that cannot be used. Raises RuntimeUnavailableError if the library cannot be loaded.
    """
    library()
    with _LOCK:
        theirs = _known() - _REGISTERED.keys()
        for name, identifier in ask_all(_delegate_id).items():
            if identifier and identifier not in theirs:
                try:
                    _register(identifier, name)
                except DelegateKitError as error:
                    warn(f"{error}")


def registered() -> tuple[Registered, ...]:
    """The delegate ids that were registered here."""
    with _LOCK:
        return tuple(Registered(identifier, tuple(names)) for identifier, names in _REGISTERED.items())


def living() -> int:
    """The number of delegates that ExecuTorch holds now."""
    return len(_LIVING)


def _delegate_id(backend: Any) -> str:
    """The delegate id of a backend; empty if it has no runtime."""
    return str(backend.description.delegate_id) if backend.has("create_runtime") else ""


def _known() -> frozenset[str]:
    return frozenset(binding()._get_registered_backend_names())


def _register(identifier: str, name: str) -> None:
    if identifier not in _REGISTERED:
        _opened()
        code = library().dk_register(identifier.encode())
        if code:
            reason = "its table of backends is full" if code == _INTERNAL else f"error 0x{code:x}"
            raise PluginError(f"ExecuTorch does not register the delegate {identifier}: {reason}", where=_WHERE)
        _REGISTERED[identifier] = []
    if name not in _REGISTERED[identifier]:
        _REGISTERED[identifier].append(name)


# The functions that the library calls. No exception leaves them: it would be lost in C++.


def _available(name: bytes) -> int:
    identifier = name.decode(errors="replace")
    try:
        with PLUGINS:
            reasons = [] if identifier in _AVAILABLE else _unavailable(identifier)
        for reason in reasons:
            failed(RuntimeUnavailableError(reason), f"delegate {identifier}")
    except BaseException as error:
        failed(error, f"delegate {identifier}")
        return 0
    return identifier in _AVAILABLE


def _unavailable(identifier: str) -> list[str]:
    """Ask the runtimes of a delegate id whether one works here; the reasons if none does."""
    if identifier in _ASKED:  # by a runtime that is made of ExecuTorch's own delegate of this id: there is none
        return []
    _ASKED.add(identifier)
    try:
        reasons = []
        for backend in _REGISTERED.get(identifier, ()):
            found = get_backend(backend).runtime_availability()
            if found.available:
                _AVAILABLE.add(identifier)
                return []
            reasons.append(f"the runtime of backend {backend} ({identifier}) cannot work here: {found.reason}")
    finally:
        _ASKED.discard(identifier)
    return reasons


def _init(address: int, blob: Any) -> int:
    try:
        _LIVING[address] = HostedDelegate(address, blob.contents, tuple(_CHOSEN))
    except BaseException as error:
        return failed(error, _WHERE)
    return 0


def _execute(address: int, call: int, traced: int, count: int, arguments: Any) -> int:
    where = _WHERE
    try:
        delegate = _LIVING[address]
        where = delegate.where
        delegate.execute(Call(call, arguments[:count], bool(traced)))
    except BaseException as error:
        return failed(error, where)
    return 0


def _destroy(address: int) -> None:
    try:
        delegate = _LIVING.pop(address, None)
        if delegate is not None:
            delegate.destroy()
    except BaseException as error:
        failed(error, _WHERE)


#: Kept, as the library has only their addresses.
_CALLBACKS: Final = (AVAILABLE(_available), INIT(_init), EXECUTE(_execute), DESTROY(_destroy))
_OPEN: Final[list[bool]] = []


def _opened() -> None:
    """Hand the functions to the library, once."""
    if not _OPEN:
        library().dk_open(*_CALLBACKS, ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p))
        atexit.register(_close)
        _OPEN.append(True)


def _close() -> None:
    """Release all delegates: ExecuTorch may destroy its own after Python ended, and must not call it then."""
    library().dk_close()
    while _LIVING:
        _LIVING.popitem()[1].destroy()
