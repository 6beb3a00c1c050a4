"""DelegateKit lowers PyTorch programs to hardware backends that are installed as plugins.

    program = delegatekit.lower(model, inputs, backends=["NAME"])
    program.save("model.pte")
    output = delegatekit.load("model.pte")["forward"](*inputs)

Importing this package imports neither a plugin nor torch; each name below is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .bundles import BundledProgram, Case, Verification, bundle, verify
    from .choosing import Row, Sweep, sweep, tune
    from .comparing import Comparison, compare
    from .compiling import Compiling
    from .emit import MemoryOptions, MemoryPlan
    from .engine import LoadedProgram, Session, load
    from .lowered_module import LoweredModule
    from .lowered_program import LoweredProgram
    from .pipeline import explain, lower, to_backend
    from .plugins import backends
    from .profiling import Profile, profile, read_etdump
    from .quantization import QuantizationReport, convert_qat, load_quantized, prepare_qat, quantize
    from .tuning import Measurements
    from .views.explanation import Explanation
    from .views.inspection import DataInspection, Inspection, inspect, inspect_data
    from .views.report import Report

_HOMES = {
    "Comparison": "comparing",
    "BundledProgram": "bundles",
    "Case": "bundles",
    "Compiling": "compiling",
    "DataInspection": "views.inspection",
    "Explanation": "views.explanation",
    "Inspection": "views.inspection",
    "LoadedProgram": "engine",
    "LoweredModule": "lowered_module",
    "LoweredProgram": "lowered_program",
    "Measurements": "tuning",
    "MemoryOptions": "emit",
    "MemoryPlan": "emit",
    "Profile": "profiling",
    "QuantizationReport": "quantization",
    "Report": "views.report",
    "Row": "choosing",
    "Session": "engine",
    "Verification": "bundles",
    "Sweep": "choosing",
    "backends": "plugins",
    "compare": "comparing",
    "bundle": "bundles",
    "convert_qat": "quantization",
    "explain": "pipeline",
    "inspect": "views.inspection",
    "inspect_data": "views.inspection",
    "load": "engine",
    "load_quantized": "quantization",
    "lower": "pipeline",
    "prepare_qat": "quantization",
    "profile": "profiling",
    "quantize": "quantization",
    "read_etdump": "profiling",
    "to_backend": "pipeline",
    "verify": "bundles",
    "sweep": "choosing",
    "tune": "choosing",
}

__all__ = [
    "BundledProgram",
    "Case",
    "Comparison",
    "Compiling",
    "DataInspection",
    "Explanation",
    "Inspection",
    "LoadedProgram",
    "LoweredModule",
    "LoweredProgram",
    "Measurements",
    "MemoryOptions",
    "MemoryPlan",
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
    "explain",
    "inspect",
    "inspect_data",
    "load",
    "load_quantized",
    "lower",
    "prepare_qat",
    "profile",
    "quantize",
    "read_etdump",
    "sweep",
    "to_backend",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
