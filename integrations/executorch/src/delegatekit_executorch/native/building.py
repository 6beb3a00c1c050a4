"""Compiles the native library against an installed wheel of ExecuTorch.

Only the standard library is imported: the build of the wheel of this package runs this file, too.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: The version of the wheel `executorch` that this package is for. Others have another C++ interface.
EXECUTORCH: Final = "1.5.1"
#: The library's file.
NAME: Final = "libdelegatekit_host.so"
SOURCE: Final = Path(__file__).with_name("host.cpp")
#: Compilers that are tried; the environment variable CXX names another one.
_COMPILERS: Final = ("g++", "clang++", "c++")
_OPTIONS: Final = (
    "-O2",
    "-shared",
    "-fPIC",
    "-std=c++17",
    "-fvisibility=hidden",
    "-DC10_USING_CUSTOM_GENERATED_MACROS",
    "-DET_EVENT_TRACER_ENABLED",
)
#: Where the wheel has c10's own headers, below its headers.
_C10: Final = "executorch/runtime/core/portable_type/c10"
#: Seconds that the compiler may take.
_PATIENCE: Final = 600
_LINES: Final = 12


class BuildError(Exception):
    """The library cannot be built here; `hint` says what helps."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def compiler(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The command of the C++ compiler. Raises BuildError if there is none."""
    chosen = shlex.split(environment.get("CXX", ""))
    for command in [chosen] if chosen else [[name] for name in _COMPILERS]:
        found = shutil.which(command[0])
        if found is not None:
            return [found, *command[1:]]
    wanted = f"CXX names {chosen[0]}, which is not there" if chosen else "there is no C++ compiler"
    raise BuildError(
        f"{wanted}: the library that runs delegates in ExecuTorch is built from source here",
        "install one (apt-get install g++), or a wheel of delegatekit-executorch, which has the library inside",
    )


def command_for(executorch: Path, target: Path, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The command that makes the library `target` for the wheel whose package is in the folder `executorch`.

    Raises BuildError for a system, a wheel or a compiler that it cannot be made with.
    """
    if not sys.platform.startswith("linux"):
        raise BuildError(
            f"the library that runs delegates in ExecuTorch cannot be built on {sys.platform}",
            "use Linux: ExecuTorch's shared library and headers are in its wheels for Linux",
        )
    headers, libraries = executorch / "include", executorch / "lib"
    needed = (headers / "executorch/runtime/backend/interface.h", libraries / "libexecutorch.so")
    missing = next((path for path in needed if not path.is_file()), None)
    if missing is not None:
        raise BuildError(
            f"the installed executorch has no {missing.relative_to(executorch)}",
            f"install the wheel from PyPI: pip install executorch=={EXECUTORCH}",
        )
    return [
        *compiler(environment),
        *_OPTIONS,
        f"-I{headers}",
        f"-I{headers / _C10}",
        str(SOURCE),
        f"-L{libraries}",
        "-l:libexecutorch.so",
        "-Wl,--no-undefined",
        "-o",
        str(target),
    ]


def build(executorch: Path, target: Path) -> None:
    """Make the library `target`. Raises BuildError; nothing is left behind then."""
    command = command_for(executorch, target)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        target.unlink(missing_ok=True)
        raise BuildError(f"the C++ compiler fails: {error}", "try another one: CXX=clang++") from error
    if done.returncode:
        target.unlink(missing_ok=True)
        told = "\n".join((done.stderr or done.stdout).strip().splitlines()[:_LINES])
        raise BuildError(
            f"the C++ compiler fails with exit code {done.returncode}:\n{told}",
            f"a compiler of C++17 is needed; the command was: {shlex.join(command)}",
        )
