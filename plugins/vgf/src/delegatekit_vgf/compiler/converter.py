"""Runs the converter, a program in the package `ai-ml-sdk-model-converter`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from delegatekit_api import Availability, LoweringError, PluginError
from delegatekit_toolkit.installed import installed
from delegatekit_toolkit.processes import ending
from delegatekit_toolkit.scratch import scratch

_DISTRIBUTION: Final = "ai-ml-sdk-model-converter"
_WHERE: Final = "model converter"
#: Seconds that a conversion may take.
_PATIENCE: Final = 600.0
_SHOWN: Final = 3


def availability() -> Availability:
    """Check that the converter is installed."""
    return installed("model_converter", "Arm's model converter", f"pip install {_DISTRIBUTION}")


def converter_version() -> str:
    """The version of the converter, which determines the bytes."""
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def convert(graph: bytes, flags: Sequence[str] = ()) -> bytes:
    """The VGF file of a TOSA file. Raises PluginError without the converter, LoweringError if it refuses or ends."""
    with scratch() as folder:
        source, made = folder / "program.tosa", folder / "program.vgf"
        source.write_bytes(graph)
        command = [str(program()), *flags, "-i", str(source), "-o", str(made)]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL, check=False
            )
        except subprocess.TimeoutExpired:
            raise LoweringError(f"does not end within {_PATIENCE:.0f} seconds", where=_WHERE) from None
        except OSError as error:
            raise PluginError(f"cannot be started: {error}", where=_WHERE) from error
        if done.returncode or not made.is_file():
            lines = (done.stderr + done.stdout).decode(errors="replace").strip().splitlines()
            told = "; ".join(line for line in lines if "rror" in line) or "; ".join(lines[-_SHOWN:])
            raise LoweringError(f"{ending(done.returncode)}: {told[:500] or 'it says nothing'}", where=_WHERE)
        return made.read_bytes()


def program() -> Path:
    """The path of the converter. Raises PluginError if it is not installed."""
    spec = find_spec("model_converter")
    if spec is None or spec.origin is None:
        raise PluginError(availability().reason, where="backend vgf")
    folder = Path(spec.origin).parent / "binaries" / "bin"
    windows = folder / "model-converter.exe"
    return windows if windows.is_file() else folder / "model-converter"
