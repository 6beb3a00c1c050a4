"""The MLX library: whether it is installed and fits, and the one stream that all delegates compute on."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from delegatekit_api import Availability, RuntimeUnavailableError
from delegatekit_toolkit.installed import installed

#: The releases whose functions are those that the interpreter calls.
OLDEST: Final = "0.32.4"
TOO_NEW: Final = "0.33"
#: Process -> its stream, and the lock of that: a child has neither the threads nor the locks of its parent.
_STREAMS: Final[dict[int, tuple[Any, threading.Lock]]] = {}
_MAKING: Final = threading.Lock()
INSTALL: Final = 'pip install "mlx[cpu]>=0.32.4,<0.33"'


def availability() -> Availability:
    """The availability of a library of a fitting version, which is not loaded."""
    return installed("mlx", "MLX", INSTALL, oldest=OLDEST, too_new=TOO_NEW)


def core() -> Any:
    """The module `mlx.core`. Raises RuntimeUnavailableError if it is missing or does not load."""
    found = availability()
    if not found.available:
        raise RuntimeUnavailableError(found.reason, where="MLX")
    try:
        return importlib.import_module("mlx.core")
    except ImportError as error:  # `mlx` without its part for this system
        what = f"MLX does not load: {error}"
        raise RuntimeUnavailableError(what, where="MLX", hint=INSTALL) from error


@contextmanager
def computing() -> Iterator[Any]:
    """The module `mlx.core`, which computes on one stream for all threads, one call at a time.

    MLX makes a stream with a thread of its own for each thread that computes, and leaves it behind. Raises
    RuntimeUnavailableError as `core` does.
    """
    library, process = core(), os.getpid()
    if process not in _STREAMS:
        with _MAKING:
            if process not in _STREAMS:
                _STREAMS[process] = library.new_thread_unsafe_stream(library.default_device()), threading.Lock()
    stream, lock = _STREAMS[process]
    with lock, library.stream(stream):
        yield library
