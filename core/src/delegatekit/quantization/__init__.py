"""Quantization for every backend: a plugin declares schemes, the core does the rest with torchao."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .commands import load_quantized
    from .flow import convert_qat, prepare_qat, quantize
    from .report import LayerReport, QuantizationReport

__all__ = ["LayerReport", "QuantizationReport", "convert_qat", "load_quantized", "prepare_qat", "quantize"]


def __getattr__(name: str) -> Any:
    # Loaded when used: the commands list schemes without torch.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = ".report" if name.endswith("Report") else ".commands" if name == "load_quantized" else ".flow"
    return getattr(import_module(place, __name__), name)
