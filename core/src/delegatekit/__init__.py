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
    from delegatekit_tools.etrecord import etrecord
    from delegatekit_tools.explanation import Explanation, explain
    from delegatekit_tools.inspection import DataInspection, Inspection, inspect, inspect_data
    from delegatekit_tools.installation import Installation, doctor
    from delegatekit_tools.page import html
    from delegatekit_tools.placement import Measurements, placement, tune
    from delegatekit_tools.profile import Profile, profile, read_etdump
    from delegatekit_tools.report import Report, report
    from delegatekit_tools.sweep import Row, Sweep, sweep

    from .compiling import Compiling
    from .emit import MemoryOptions, MemoryPlan
    from .engine import LoadedProgram, Session, load
    from .pipeline import LoweredModule, LoweredProgram, PlannedProgram, lower, plan, to_backend
    from .plugins import backends
    from .quantization import QuantizationReport, convert_qat, load_quantized, prepare_qat, quantize

#: Name -> the room of the core that has it.
_CORE = {
    "Compiling": "compiling",
    "LoadedProgram": "engine",
    "LoweredModule": "pipeline",
    "LoweredProgram": "pipeline",
    "MemoryOptions": "emit",
    "MemoryPlan": "emit",
    "PlannedProgram": "pipeline",
    "QuantizationReport": "quantization",
    "Session": "engine",
    "backends": "plugins",
    "convert_qat": "quantization",
    "load": "engine",
    "load_quantized": "quantization",
    "lower": "pipeline",
    "plan": "pipeline",
    "prepare_qat": "quantization",
    "quantize": "quantization",
    "to_backend": "pipeline",
}
#: Name -> the room of `delegatekit-tools` that has it; some functions have commands of their names.
TOOLS = {
    "BundledProgram": "bundles",
    "Case": "bundles",
    "Comparison": "compare",
    "DataInspection": "inspection",
    "Explanation": "explanation",
    "Inspection": "inspection",
    "Installation": "installation",
    "Measurements": "placement",
    "Profile": "profile",
    "Report": "report",
    "Row": "sweep",
    "Sweep": "sweep",
    "Verification": "bundles",
    "bundle": "bundles",
    "compare": "compare",
    "doctor": "installation",
    "etrecord": "etrecord",
    "explain": "explanation",
    "html": "page",
    "inspect": "inspection",
    "inspect_data": "inspection",
    "operators": "dialect",
    "placement": "placement",
    "profile": "profile",
    "read_etdump": "profile",
    "report": "report",
    "sweep": "sweep",
    "tune": "placement",
    "verify": "bundles",
}

__all__ = [
    "BundledProgram",
    "Case",
    "Comparison",
    "Compiling",
    "DataInspection",
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
    "report",
    "sweep",
    "to_backend",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _CORE:
        module = import_module(f".{_CORE[name]}", __name__)
    elif name in TOOLS:
        module = _tool(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def _tool(name: str) -> ModuleType:
    """The module of `delegatekit-tools` that has a name. Raises MissingToolsError where that is not installed."""
    try:
        return import_module(f"delegatekit_tools.{TOOLS[name]}")
    except ModuleNotFoundError as error:
        if error.name != "delegatekit_tools":
            raise
        from .errors.misuse import MissingToolsError

        raise MissingToolsError(f"delegatekit.{name}") from None


def __dir__() -> list[str]:
    return sorted(__all__)
