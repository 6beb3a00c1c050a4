"""Quantization for every backend: a plugin declares schemes, the core applies them with torchao."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .border import IntegerArgument, IntegerPrograms, integer_io
    from .commands import load_quantized, load_quantized_methods
    from .flow import convert_qat, prepare_qat, quantize
    from .listing import schemes_as_json, schemes_by_backend, schemes_text
    from .methods import QuantizedMethods, quantize_methods, save_methods
    from .pt2e import PT2EQuantizer
    from .ratio import SignalToNoise, sqnr_db
    from .report import LayerReport, QuantizationReport
    from .samples import read_calibration

#: Name -> its module, which is loaded on first use: the commands list schemes without torch.
_HOMES: Final = {
    "LayerReport": "report",
    "PT2EQuantizer": "pt2e",
    "QuantizationReport": "report",
    "QuantizedMethods": "methods",
    "SignalToNoise": "ratio",
    "IntegerArgument": "border",
    "IntegerPrograms": "border",
    "convert_qat": "flow",
    "integer_io": "border",
    "load_quantized": "commands",
    "load_quantized_methods": "commands",
    "prepare_qat": "flow",
    "quantize": "flow",
    "quantize_methods": "methods",
    "read_calibration": "samples",
    "save_methods": "methods",
    "schemes_as_json": "listing",
    "schemes_by_backend": "listing",
    "schemes_text": "listing",
    "sqnr_db": "ratio",
}

__all__ = [
    "IntegerArgument",
    "IntegerPrograms",
    "LayerReport",
    "PT2EQuantizer",
    "QuantizationReport",
    "QuantizedMethods",
    "SignalToNoise",
    "convert_qat",
    "integer_io",
    "load_quantized",
    "load_quantized_methods",
    "prepare_qat",
    "quantize",
    "quantize_methods",
    "read_calibration",
    "save_methods",
    "schemes_as_json",
    "schemes_by_backend",
    "schemes_text",
    "sqnr_db",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
