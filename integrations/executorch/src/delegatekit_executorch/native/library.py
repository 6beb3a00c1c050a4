"""The native library, loaded: checks ExecuTorch's version first, and builds the library if the wheel has none."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import platform
import tempfile
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from delegatekit.plugins import cache_folder
from delegatekit_api import RuntimeUnavailableError

from . import building
from .building import EXECUTORCH, NAME, SOURCE, BuildError

_WHERE: Final = "delegatekit_executorch.host"
_INSTALL: Final = f"pip install executorch=={EXECUTORCH}"


class Argument(ctypes.Structure):
    """`DkArgument`: an argument of a call."""

    data: int | None
    nbytes: int
    kind: int
    dtype: int
    dynamic: int
    ndim: int
    sizes: Any
    strides: Any
    order: Any

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("nbytes", ctypes.c_int64),
        ("kind", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("dynamic", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("sizes", ctypes.POINTER(ctypes.c_int32)),
        ("strides", ctypes.POINTER(ctypes.c_int32)),
        ("order", ctypes.POINTER(ctypes.c_uint8)),
    )


class Spec(ctypes.Structure):
    """`DkSpec`: a compile spec."""

    _fields_ = (("key", ctypes.c_char_p), ("value", ctypes.c_void_p), ("nbytes", ctypes.c_int64))


class Blob(ctypes.Structure):
    """`DkBlob`: a delegate that is loaded."""

    _fields_ = (
        ("backend", ctypes.c_char_p),
        ("method", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("nbytes", ctypes.c_int64),
        ("specs", ctypes.POINTER(Spec)),
        ("spec_count", ctypes.c_int64),
    )


AVAILABLE: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)
INIT: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Blob))
EXECUTE: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(Argument)
)
DESTROY: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "dk_open": (None, (AVAILABLE, INIT, EXECUTE, DESTROY, ctypes.c_void_p)),
    "dk_close": (None, ()),
    "dk_register": (ctypes.c_int32, (ctypes.c_char_p,)),
    "dk_named": (
        ctypes.c_int32,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)),
    ),
    "dk_named_count": (ctypes.c_int64, (ctypes.c_void_p,)),
    "dk_named_key": (ctypes.c_char_p, (ctypes.c_void_p, ctypes.c_int64)),
    "dk_resize": (
        ctypes.c_int32,
        (ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32)),
    ),
    "dk_ticks": (ctypes.c_uint64, ()),
    "dk_event": (
        None,
        (
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_int64,
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.c_char_p,
            ctypes.c_int64,
        ),
    ),
    "dk_log": (None, (ctypes.c_char_p,)),
}


@cache
def library() -> ctypes.CDLL:
    """The library, with ExecuTorch's own loaded before it.

    Raises RuntimeUnavailableError, before anything is loaded, for another version of ExecuTorch than it is made for,
    and if there is neither a library nor what it takes to build one.
    """
    check_version()
    path = library_path()
    binding()
    try:
        # Not into the global namespace: what it needs of ExecuTorch is named by the library itself.
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise RuntimeUnavailableError(f"the library cannot be loaded: {error}", where=_WHERE, hint=_INSTALL) from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def binding() -> Any:
    """ExecuTorch's low-level binding, which loads its libraries. Raises RuntimeUnavailableError."""
    check_version()
    import torch  # noqa: F401  # ExecuTorch's binding needs its libraries

    try:
        from executorch.extension.pybindings import _C
    except Exception as error:  # whatever a broken installation raises
        raise RuntimeUnavailableError(f"executorch cannot be imported: {error}", where=_WHERE, hint=_INSTALL) from error
    return _C


def check_version() -> None:
    """Raise RuntimeUnavailableError unless the version of ExecuTorch that this package is for is installed."""
    try:
        found = metadata.version("executorch")
    except metadata.PackageNotFoundError:
        raise RuntimeUnavailableError("executorch is not installed", where=_WHERE, hint=_INSTALL) from None
    if found.partition("+")[0] != EXECUTORCH:  # without the local part, as in 1.5.1+cpu
        raise RuntimeUnavailableError(
            f"is for executorch {EXECUTORCH}, and {found} is installed: the C++ interface changes between versions",
            where=_WHERE,
            hint=_INSTALL,
        )


def library_path() -> Path:
    """The library: the one in this package's wheel, or one built from source, once for each user.

    Raises RuntimeUnavailableError if it cannot be built.
    """
    packaged = SOURCE.with_name(NAME)
    if packaged.is_file():
        return packaged
    folder = executorch_folder()
    try:
        return _built(folder)
    except BuildError as error:
        raise RuntimeUnavailableError(error.what, where=_WHERE, hint=error.hint) from error


def executorch_folder() -> Path:
    """The folder of the installed package. Raises RuntimeUnavailableError."""
    spec = find_spec("executorch")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise RuntimeUnavailableError("executorch is not installed", where=_WHERE, hint=_INSTALL)
    return Path(places[0])


def _built(executorch: Path) -> Path:
    """The library in the user's cache folder, built if it is not there; in a folder for this process if that fails."""
    name = f"{Path(NAME).stem}-{_key(executorch)}.so"
    try:
        folder = cache_folder() / "executorch"
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / name
        if place.is_file():
            return place
        with (folder / f"{name}.lock").open("w") as lock:
            # Several processes may start at once: one builds, the others wait for it.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.is_file():
                part = folder / f".{name}.part"
                building.build(executorch, part)
                part.replace(place)
        return place
    except (OSError, RuntimeError):  # no home folder, a folder that cannot be written, or DELEGATEKIT_CACHE=off
        place = Path(_own_folder().name) / name
        if not place.is_file():
            building.build(executorch, place)
        return place


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that ends with this process."""
    return tempfile.TemporaryDirectory(prefix="delegatekit-")


def _key(executorch: Path) -> str:
    """A digest of what the library is made from: the source, the command, and the library that it is for."""
    found = hashlib.sha256(SOURCE.read_bytes())
    found.update(Path(building.__file__).read_bytes())
    built_for = (executorch / "lib" / "libexecutorch.so").stat() if (executorch / "lib").is_dir() else None
    size = built_for.st_size if built_for is not None else 0
    found.update(f"{EXECUTORCH} {platform.machine()} {size}".encode())
    return found.hexdigest()[:20]
