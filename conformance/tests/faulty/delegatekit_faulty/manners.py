"""Faults in manners: leftovers, output, downloads, and differences between processes."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from typing import Any

from .fault import Wrapped, fault


@fault("preprocess", "contract/*")
def _time_of_day_in_the_blob(sound: Any) -> Any:
    """The blob holds the time at which it was made."""

    def preprocess(partition: Any, options: Any) -> Any:
        from .plugin import with_remark

        return with_remark(sound(partition=partition, options=options), str(time.time_ns()))

    return preprocess


@fault("preprocess", "contract/*")
def _order_of_a_set_in_the_blob(sound: Any) -> Any:
    """The blob depends on the order of a set of strings, which differs between processes."""

    def preprocess(partition: Any, options: Any) -> Any:
        from .plugin import with_remark

        return with_remark(sound(partition=partition, options=options), " ".join({f"name{i}" for i in range(40)}))

    return preprocess


@fault("preprocess", "contract/*")
def _prints_to_stdout(sound: Any) -> Any:
    """The compiler prints a greeting on stdout."""

    def preprocess(partition: Any, options: Any) -> Any:
        os.write(1, b"Compiler 1.0\n")
        return sound(partition=partition, options=options)

    return preprocess


@fault("preprocess", "contract/*")
def _leaves_a_file(sound: Any) -> Any:
    """The compiler leaves its intermediate file in the temporary folder."""

    def preprocess(partition: Any, options: Any) -> Any:
        handle, _ = tempfile.mkstemp(prefix="faulty-", suffix=".mlir")
        os.close(handle)
        return sound(partition=partition, options=options)

    return preprocess


@fault("preprocess", "contract/*")
def _calls_home(sound: Any) -> Any:
    """The compiler asks a server for a newer version of itself."""

    def preprocess(partition: Any, options: Any) -> Any:
        with contextlib.suppress(OSError):
            socket.create_connection(("192.0.2.1", 9), timeout=0.1).close()
        return sound(partition=partition, options=options)

    return preprocess


@fault("preprocess", "contract/*")
def _leaves_a_thread(sound: Any) -> Any:
    """Each compilation leaves a thread running."""

    def preprocess(partition: Any, options: Any) -> Any:
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        return sound(partition=partition, options=options)

    return preprocess


@fault("runtime", "contract/*")
def _runtime_raises_when_asked(sound: Any) -> Any:
    """Asking whether the runtime is available raises."""

    class Runtime(Wrapped):
        def is_available(self) -> Any:
            raise OSError("no driver")

    return Runtime(sound)
