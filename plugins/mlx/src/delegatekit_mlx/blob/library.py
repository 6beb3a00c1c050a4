"""The MLX library: whether it is installed and fits."""

from __future__ import annotations

import importlib
from typing import Any, Final

from delegatekit_api import Availability, RuntimeUnavailableError
from delegatekit_toolkit.installed import installed

#: The releases whose functions are those that the interpreter calls.
OLDEST: Final = "0.32.4"
TOO_NEW: Final = "0.33"
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
