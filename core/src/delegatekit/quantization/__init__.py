"""Quantization for every backend: a plugin declares schemes, the core applies them with torchao."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .border import IntegerArgument, IntegerPrograms, integer_io
    from .commands import load_quantized
    from .flow import convert_qat, prepare_qat, quantize
    from .listing import schemes_as_json, schemes_by_backend, schemes_text
    from .pt2e import PT2EQuantizer
    from .ratio import SignalToNoise, sqnr_db
    from .report import LayerReport, QuantizationReport
    from .samples import read_calibration

#: Name -> its module, which is loaded on first use: the commands list schemes without torch.
_HOMES: Final = {
    "LayerReport": "report",
    "PT2EQuantizer": "pt2e",
    "QuantizationReport": "report",
    "SignalToNoise": "ratio",
    "IntegerArgument": "border",
    "IntegerPrograms": "border",
    "convert_qat": "flow",
    "integer_io": "border",
    "load_quantized": "commands",
    "prepare_qat": "flow",
    "quantize": "flow",
    "read_calibration": "samples",
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
    "SignalToNoise",
    "convert_qat",
    "integer_io",
    "load_quantized",
    "prepare_qat",
    "quantize",
    "read_calibration",
    "schemes_as_json",
    "schemes_by_backend",
    "schemes_text",
    "sqnr_db",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
