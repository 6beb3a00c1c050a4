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
    from .choosing import Row, Sweep, sweep, tune
    from .compiling import Compiling
    from .emit import MemoryOptions, MemoryPlan
    from .engine import LoadedProgram, Session, load
    from .lowered_module import LoweredModule
    from .lowered_program import LoweredProgram
    from .pipeline import explain, lower, to_backend
    from .plugins import backends
    from .profiling import Profile, profile
    from .quantization import QuantizationReport, convert_qat, load_quantized, prepare_qat, quantize
    from .tuning import Measurements
    from .views.explanation import Explanation
    from .views.inspection import DataInspection, Inspection, inspect, inspect_data
    from .views.report import Report

_HOMES = {
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
    "Sweep": "choosing",
    "backends": "plugins",
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
    "sweep": "choosing",
    "to_backend": "pipeline",
    "tune": "choosing",
}

__all__ = [
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
    "__version__",
    "backends",
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
    "sweep",
    "to_backend",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
