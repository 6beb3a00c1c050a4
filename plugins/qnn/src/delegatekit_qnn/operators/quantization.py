"""Quantize and dequantize: where numbers become integers of an encoding, or integers constants of numbers."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_api.schemes import DEQUANTIZE, QUANTIZE
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row, row

from ..ir.encodings import activation_fault, activation_type, weight_fault
from ..ir.values import Value
from .program import Lower, ProgramBuilder


def _quantize(b: ProgramBuilder, call: Call) -> Value:
    quantization = call.quantization
    assert quantization is not None
    return b.quantized(b.value(call["input"]), *activation_type(quantization))


def _dequantize(b: ProgramBuilder, call: Call) -> Value:
    """Integers stay what they are: what needs floats asks for them. Constants become numbers."""
    source = call["input"]
    if not source.is_constant:
        return b.value(source)
    return Value(b.constant(b.numbers(call.result)), identity(source.rank))


def known_encoding(call: Call) -> str | None:
    """Scales are known; activations are uint8, int8, uint16 or int16, with one scale and the whole range."""
    quantization = call.quantization
    if call.operator in DEQUANTIZE and call["input"].is_constant:
        if quantization is None:
            return weight_fault(None)
        return None if quantization.group is None else weight_fault(quantization)
    return activation_fault(quantization)


def one_encoding(call: Call) -> str | None:
    """Integers are read by dequantizes only, all with the same scale and zero point."""
    source: Operand = call.result if call.operator in QUANTIZE else call["input"]
    if source.is_constant:
        return None
    if any(user.operator not in DEQUANTIZE for user in source.users):
        return f"{source.name} is read by something that computes on its integers"
    maker = source.producer
    makes = [maker] if maker is not None and maker.operator in QUANTIZE else []
    first, *others = [item.quantization for item in (*makes, *source.users)]
    if any(item != first for item in others):
        return f"{source.name} is read with several scales or zero points"
    return None


_CONDITIONS: Final = (known_encoding, one_encoding)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row(" ".join(sorted(QUANTIZE)), _quantize, *_CONDITIONS, keep=True, passenger=True, integers=True),
    row(" ".join(sorted(DEQUANTIZE)), _dequantize, *_CONDITIONS, keep=True, passenger=True, integers=True),
)
