"""Quantization: schemes that a backend declares, and what the integers of a quantized program mean, as plain data.

A quantized program has its numbers as integers between a quantize and a dequantize, and its weights as constants that
a dequantize reads. torchao spells that in several ways; `Operand.quantization` and `Call.quantization` read all of
them, so that no backend has to.
"""

from __future__ import annotations

from ._partitioner import IntegerPartitioner
from ._quantization import DEQUANTIZE, DEQUANTIZE_TABLES, DYNAMIC, QUANTIZE, Quantization
from ._quantizer import (
    INTEGER_RANGES,
    MOVING_OPERATORS,
    PER_CHANNEL,
    PER_SAMPLE,
    PER_TENSOR,
    PER_TOKEN,
    Decline,
    FindTable,
    Granularity,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
    per_channels,
    per_group,
)

__all__ = [
    "DEQUANTIZE",
    "DEQUANTIZE_TABLES",
    "DYNAMIC",
    "INTEGER_RANGES",
    "MOVING_OPERATORS",
    "PER_CHANNEL",
    "PER_SAMPLE",
    "PER_TENSOR",
    "PER_TOKEN",
    "QUANTIZE",
    "Decline",
    "FindTable",
    "Granularity",
    "IntegerPartitioner",
    "Quantization",
    "QuantizationRule",
    "QuantizationScheme",
    "TensorQuantization",
    "per_channels",
    "per_group",
]
