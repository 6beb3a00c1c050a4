"""The OpenVINO library: whether it is installed and fits, and its import without telemetry."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, Final

from delegatekit_api import Availability, DelegateKitError, RuntimeUnavailableError
from delegatekit_toolkit.installed import installed, release_of

from ..targets import AUTO

#: The releases whose blobs stock ExecuTorch 1.5 loads, and whose blobs have the layout that this package reads.
OLDEST: Final = "2025.4"
TOO_NEW: Final = "2026"
INSTALL: Final = 'pip install --no-deps "openvino>=2025.4,<2026"'
_MODULES: Final = ("openvino", "openvino.opset15")
_LOCK: Final = threading.RLock()


def release() -> str:
    """The release of the installed library, whose blobs it reads: "2025.4"."""
    return ".".join(release_of("openvino").split(".")[:2])


def availability() -> Availability:
    """The availability of a library of a fitting version, which is not loaded."""
    return installed("openvino", "OpenVINO", INSTALL, oldest=OLDEST, too_new=TOO_NEW)


def has_device(device: str) -> Availability:
    """The availability of the library, and of a device on this computer. For others than the CPU it is loaded."""
    found = availability()
    if not found.available or device == "CPU":
        return found
    devices = core().available_devices
    if device == AUTO or any(_kind(name) == device for name in devices):
        return found
    what = f"OpenVINO finds no {device} on this computer, and compiles only for devices that it has"
    return Availability(False, f"{what}: {', '.join(devices)}")


def chosen_device(device: str) -> str:
    """A device; for AUTO the one that OpenVINO chooses on this computer: it exports nothing that AUTO compiled."""
    return _preferred_device() if device == AUTO else device


@cache
def _preferred_device() -> str:
    """The kind of the device that OpenVINO's AUTO compiles a small model for."""
    numbers = openvino().opset15
    size = numbers.parameter([1], openvino().Type.f32)
    model = openvino().Model([numbers.result(numbers.relu(size))], [size], "choice")
    # Else the CPU would be told for as long as another device compiles.
    properties = {"PERFORMANCE_HINT": "LATENCY", "ENABLE_STARTUP_FALLBACK": False}
    devices = core().compile_model(model, AUTO, properties).get_property("EXECUTION_DEVICES")
    return _kind(devices[0])


def _kind(name: str) -> str:
    """The kind of a device that is counted: GPU of GPU.0."""
    return name.partition(".")[0]


@cache
def openvino() -> ModuleType:
    """The library. Raises RuntimeUnavailableError where it is missing or does not fit."""
    if not (known := availability()).available:
        raise RuntimeUnavailableError(known.reason, where="OpenVINO")
    try:
        with _LOCK, _without_telemetry():
            library, _ = map(importlib.import_module, _MODULES)
    except (ImportError, OSError) as error:
        raise RuntimeUnavailableError(f"OpenVINO cannot be loaded: {error}", where="OpenVINO") from error
    return library


def core() -> Any:
    """The library's core, which knows the devices: one in a process.

    Raises RuntimeUnavailableError in a fork of a process that has one: it lacks the core's threads, and would hang.
    """
    with _LOCK:
        made, process = _made_core()
    if process != os.getpid():
        raise RuntimeUnavailableError(
            "OpenVINO was used by the process that this one was forked from: it does not work in a fork",
            where="OpenVINO",
            hint="start processes with spawn or forkserver, or fork before the first use",
        )
    return made


@cache
def _made_core() -> tuple[Any, int]:
    """The core, and the process that made it."""
    return openvino().Core(), os.getpid()


@contextmanager
def told(what: str, kind: type[DelegateKitError], where: str) -> Iterator[None]:
    """What OpenVINO raises as an error of a kind: `what`, and the last line of OpenVINO's text."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        text = str(error).strip() or type(error).__name__
        raise kind(f"{what}: {text.splitlines()[-1]}", where=where) from error


@contextmanager
def _without_telemetry() -> Iterator[None]:
    """Importing the library starts a process that posts, unless this module is missing."""
    name = "openvino_telemetry"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
