"""The package of Vela, Arm's compiler. It is imported on first use: the backend can be queried without it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from delegatekit_api import Availability, PluginError
from delegatekit_toolkit.installed import installed

_INSTALL: Final = "pip install ethos-u-vela"


def compiler() -> Any:
    """The module with Vela's compiler. Raises PluginError if it cannot be imported."""
    try:
        from ethosu import regor
    except ImportError as error:
        raise _missing(error) from error
    return regor


def availability() -> Availability:
    """Check that it is installed."""
    return installed("ethosu", "Vela, the compiler,", _INSTALL)


def packaged_configuration() -> Path:
    """The configuration file in the package. Raises PluginError without it."""
    try:
        import ethosu
    except ImportError as error:
        raise _missing(error) from error
    return Path(next(iter(ethosu.__path__))) / "config_files" / "Arm" / "vela.ini"


def vela_version() -> str:
    """The version of Vela, which determines the compiled bytes."""
    try:
        return version("ethos-u-vela")
    except PackageNotFoundError:
        return "unknown"


def _missing(error: ImportError) -> PluginError:
    return PluginError(f"Vela, the compiler, cannot be imported: {error}", where="backend ethosu", hint=_INSTALL)
