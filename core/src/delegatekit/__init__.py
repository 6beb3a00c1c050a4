"""DelegateKit lowers PyTorch programs to hardware backends that are installed as plugins.

    program = delegatekit.lower(model, inputs, backends=["NAME"])
    program.save("model.pte")
    output = delegatekit.load("model.pte")["forward"](*inputs)

Importing this package imports neither a plugin nor torch; each name below is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from delegatekit_tools.bundles import BundledProgram, Case, Verification, bundle, verify
    from delegatekit_tools.compare import Comparison, compare
    from delegatekit_tools.dialect import operators
    from delegatekit_tools.differences import Differences, diff
    from delegatekit_tools.etrecord import etrecord
    from delegatekit_tools.explanation import Explanation, explain
    from delegatekit_tools.inspection import DataInspection, Inspection, inspect, inspect_data
    from delegatekit_tools.installation import Installation, doctor
    from delegatekit_tools.page import html
    from delegatekit_tools.placement import Measurements, placement, tune
    from delegatekit_tools.profile import Profile, profile, read_etdump
    from delegatekit_tools.repartition import Repartitioned, repartition
    from delegatekit_tools.report import Report, report
    from delegatekit_tools.sweep import Row, Sweep, sweep

    from .compiling import Compiling
    from .emit import MemoryOptions, MemoryPlan
    from .engine import LoadedProgram, Session, load
    from .pipeline import LoweredModule, LoweredProgram, PlannedProgram, lower, plan, to_backend
    from .plugins import backends
    from .quantization import QuantizationReport, convert_qat, load_quantized, prepare_qat, quantize

#: Room of the core -> its names here.
_CORE = {
    "compiling": ("Compiling",),
    "emit": ("MemoryOptions", "MemoryPlan"),
    "engine": ("LoadedProgram", "Session", "load"),
    "pipeline": ("LoweredModule", "LoweredProgram", "PlannedProgram", "lower", "plan", "to_backend"),
    "plugins": ("backends",),
    "quantization": ("QuantizationReport", "convert_qat", "load_quantized", "prepare_qat", "quantize"),
}
#: Room of `delegatekit-tools` -> its names here; some functions have commands of their names.
_TOOLS = {
    "bundles": ("BundledProgram", "Case", "Verification", "bundle", "verify"),
    "compare": ("Comparison", "compare"),
    "dialect": ("operators",),
    "differences": ("Differences", "diff"),
    "etrecord": ("etrecord",),
    "explanation": ("Explanation", "explain"),
    "installation": ("Installation", "doctor"),
    "inspection": ("DataInspection", "Inspection", "inspect", "inspect_data"),
    "page": ("html",),
    "placement": ("Measurements", "placement", "tune"),
    "profile": ("Profile", "profile", "read_etdump"),
    "repartition": ("Repartitioned", "repartition"),
    "report": ("Report", "report"),
    "sweep": ("Row", "Sweep", "sweep"),
}
_ROOMS = {name: room for rooms in (_CORE, _TOOLS) for room, names in rooms.items() for name in names}
#: The names of `delegatekit-tools`.
TOOLS = frozenset(name for names in _TOOLS.values() for name in names)

__all__ = [
    "BundledProgram",
    "Case",
    "Comparison",
    "Compiling",
    "DataInspection",
    "Differences",
    "Explanation",
    "Inspection",
    "Installation",
    "LoadedProgram",
    "LoweredModule",
    "LoweredProgram",
    "Measurements",
    "MemoryOptions",
    "MemoryPlan",
    "PlannedProgram",
    "Profile",
    "QuantizationReport",
    "Repartitioned",
    "Report",
    "Row",
    "Session",
    "Sweep",
    "Verification",
    "__version__",
    "backends",
    "bundle",
    "compare",
    "convert_qat",
    "diff",
    "doctor",
    "etrecord",
    "explain",
    "html",
    "inspect",
    "inspect_data",
    "load",
    "load_quantized",
    "lower",
    "operators",
    "placement",
    "plan",
    "prepare_qat",
    "profile",
    "quantize",
    "read_etdump",
    "repartition",
    "report",
    "sweep",
    "to_backend",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _tool(name) if name in TOOLS else import_module(f".{_ROOMS[name]}", __name__)
    value = getattr(module, name)
    globals()[name] = value
    return value


def _tool(name: str) -> ModuleType:
    """The module of `delegatekit-tools` that has a name. Raises MissingToolsError where that is not installed."""
    try:
        return import_module(f"delegatekit_tools.{_ROOMS[name]}")
    except ModuleNotFoundError as error:
        if error.name != "delegatekit_tools":
            raise
        from .errors.misuse import MissingToolsError

        raise MissingToolsError(f"delegatekit.{name}") from None


def __dir__() -> list[str]:
    return sorted(__all__)
