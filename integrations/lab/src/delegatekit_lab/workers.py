"""A Dask worker for a board: it runs cases where it is, and their delegates on the board."""

from __future__ import annotations

import os
import signal
import time
from importlib.util import find_spec
from typing import Final

from delegatekit.plugins import DEVICES
from delegatekit_api import OptionError
from delegatekit_toolkit.limited import Process, module

from .addresses import Address

#: Seconds before a worker that has ended is started again: the scheduler may be starting, too.
_REST: Final = 2.0


def keep(scheduler: str, device: str, *, name: str = "", kind: str = "") -> None:
    """Run a worker again and again, until SIGTERM or Ctrl-C. `device` is BACKEND=ADDRESS. Raises OptionError."""
    backend, equals, address = device.partition("=")
    if not equals or not backend:
        raise OptionError(f"{device!r} is not of the form BACKEND=ADDRESS", hint="acme=tls://HOST:PORT")
    where = Address.of(address)
    if find_spec("distributed") is None:
        raise OptionError("a worker needs Dask", hint="pip install 'delegatekit-lab[cluster]'")
    resources = " ".join(f"{item}=1" for item in (backend, *([f"{backend}.{kind}"] if kind else ())))
    command = module("dask", "worker", scheduler, "--nthreads", "1", "--no-nanny", "--no-dashboard")
    command += ["--name", name or str(where), "--resources", resources]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    while True:
        process = Process(command, environment={**os.environ, DEVICES: device}, joined=True)
        try:
            ended = process.wait(None)
        except KeyboardInterrupt:
            process.stop()
            return
        print("\n".join(ended.last[-20:]), f"the worker {ended.ending}; another is started", sep="\n", flush=True)
        time.sleep(_REST)
