"""Decompresses weight streams with the decoder packaged with Vela, in a process of its own.

The decoder crashes its process on a damaged stream. A blob must not be able to do that to its user.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from delegatekit_api import Availability, FormatError, RuntimeUnavailableError
from delegatekit_toolkit.processes import Answering, EndedError

#: Seconds to wait for an answer: the largest networks take one or two.
_PATIENCE: Final = 300.0
_PROCESS: Final = Path(__file__).with_name("decompressor_process.py")


def availability() -> Availability:
    """Check that the decoder is installed."""
    try:
        from ethosu import mlw_codec  # noqa: F401
    except ImportError as error:
        return Availability(False, f"Vela's weight decoder is not installed ({error}): pip install ethos-u-vela")
    return Availability(True)


def decompress(data: bytes, where: str) -> npt.NDArray[np.int16]:
    """The weights of a stream, in its order.

    Raises FormatError if the decoder refuses it, and RuntimeUnavailableError if there is none.
    """
    with _LOCK:
        global _process  # noqa: PLW0603
        if _process is None or _process.foreign:
            available = availability()
            if not available.available:
                raise RuntimeUnavailableError(available.reason, where=where)
            _process = Answering([sys.executable, "-I", str(_PROCESS), *sys.path], seconds=_PATIENCE)
        try:
            weights = _process.ask(data)
        except EndedError as error:
            _process = None
            raise FormatError("the weight stream is damaged: it cannot be decoded", where=where) from error
    return np.frombuffer(weights, "<i2").astype(np.int16)


def hold() -> None:
    """Announce that the caller will decompress: once started, the process is kept until `release`."""
    with _LOCK:
        global _holders  # noqa: PLW0603
        _holders += 1


def release() -> None:
    """End the use begun by `hold`; with the last one the process ends."""
    with _LOCK:
        global _holders, _process  # noqa: PLW0603
        _holders -= 1
        if _holders == 0 and _process is not None:
            _process.end()
            _process = None


_LOCK: Final = threading.Lock()
_process: Answering | None = None
_holders = 0
