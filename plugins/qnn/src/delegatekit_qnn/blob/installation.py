"""Finds the vendor's library, and the reason if it cannot be used."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from delegatekit_api import Availability

INSTALL: Final = "pip install 'delegatekit-qnn[htp]'"
#: The environment variable that names a full SDK of the vendor.
SDK: Final = "QNN_SDK_ROOT"
#: The libraries in use, in loading order.
LIBRARIES: Final = ("libQnnHtp.so", "libQnnSystem.so")
_BINDING: Final = "backends/qualcomm/python/PyQnnManagerAdaptor*"
_OLDEST_GLIBC: Final = (2, 35)
#: The wheel whose library works with ExecuTorch's binding.
_WHEEL: Final = "2.5.0"
_AGAIN: Final = f"pip install --force-reinstall --no-deps onnxruntime-qnn=={_WHEEL}"
#: Part of the loader's message -> the remedy.
_ADVICE: Final = {
    "libatomic.so": "install the system's libatomic (Debian and Ubuntu: apt-get install libatomic1)",
    "' not found (required by": "use a newer distribution, such as Debian 12 or Ubuntu 22.04",
    "could not create its backend": f"executorch 1.5.1 works with version 2.49 of it: unset {SDK}, or name such an SDK",
    "PyQnnManagerAdaptor": "pip install --force-reinstall --no-deps executorch==1.5.1",
}
#: The library's version in wheels that were tried.
_LIBRARY_VERSIONS: Final = {
    "2.3.0": "2.47.0",
    "2.4.0": "2.48.40",
    "2.5.0": "2.49.40",
    "2.6.0": "2.50.40",
    "2.7.0": "2.51.0",
}


@dataclass(frozen=True)
class Installation:
    """A usable library; its version is "" if unknown."""

    folder: Path
    version: str


@dataclass(frozen=True)
class Missing:
    """The reason for its absence, and the remedy."""

    reason: str
    hint: str = INSTALL

    @property
    def availability(self) -> Availability:
        """The same in the core's form."""
        return Availability(False, f"{self.reason}: {self.hint}")


def find_installation() -> Installation | Missing:
    """The library of the SDK in the environment, or of the wheel. It is searched once for each SDK."""
    return _found(os.environ.get(SDK, ""))


@cache
def _found(root: str) -> Installation | Missing:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return Missing(
            f"Qualcomm's compiler runs on Linux with an x86-64 processor, not on {sys.platform} {platform.machine()}",
            "compile on such a machine: the .pte runs on the device",
        )
    name, number = platform.libc_ver()
    if name != "glibc" or tuple(map(int, number.split(".")[:2])) < _OLDEST_GLIBC:
        return Missing(
            f"Qualcomm's compiler needs glibc 2.35 or newer, here is {name or 'another C library'} {number}",
            "use a newer distribution, such as Debian 12 or Ubuntu 22.04",
        )
    stock = find_spec("executorch")
    if stock is None or not stock.submodule_search_locations:
        return Missing("executorch, whose binding of Qualcomm's compiler is used, is not installed")
    if not any(list(Path(item).glob(_BINDING)) for item in stock.submodule_search_locations):
        return Missing("the installed executorch was built without its binding of Qualcomm's compiler")
    return _from_sdk(Path(root)) if root else _from_wheel()


def unusable(found: Installation, failure: str) -> Missing:
    """The reason why an existing library cannot be used, from the message of its loader or itself."""
    advice = (hint for mark, hint in _ADVICE.items() if mark in failure)
    again = f"correct {SDK}, or unset it" if os.environ.get(SDK) else _AGAIN
    return Missing(f"Qualcomm's library in {found.folder} {failure}", next(advice, again))


def _from_sdk(root: Path) -> Installation | Missing:
    folder = root / "lib" / "x86_64-linux-clang"
    lacking = [folder / name for name in LIBRARIES if not (folder / name).is_file()]
    if lacking:
        return Missing(f"{SDK} is {root}, but there is no {lacking[0]}", f"correct {SDK}, or unset it")
    # The SDK's folder is named by its version: qairt/2.37.0.250724.
    named = re.match(r"\d+\.\d+\.\d+", root.resolve().name)
    return Installation(folder, named[0] if named else "")


def _from_wheel() -> Installation | Missing:
    found = find_spec("onnxruntime_qnn")
    if found is None or not found.submodule_search_locations:
        return Missing("onnxruntime-qnn, which has Qualcomm's compiler and simulator, is not installed")
    try:
        installed = version("onnxruntime-qnn")
    except PackageNotFoundError:
        return Missing("onnxruntime-qnn is installed without its metadata")
    if installed != _WHEEL:
        return Missing(
            f"onnxruntime-qnn {installed} is installed: ExecuTorch's binding works with the library of {_WHEEL} only",
            f"pip install onnxruntime-qnn=={_WHEEL}",
        )
    folder = Path(found.submodule_search_locations[0])
    lacking = [folder / name for name in LIBRARIES if not (folder / name).is_file()]
    if lacking:
        return Missing(f"onnxruntime-qnn is installed, but there is no {lacking[0]}", _AGAIN)
    return Installation(folder, _LIBRARY_VERSIONS[installed])
