"""Quantize and dequantize: where numbers become integers of an encoding, or integers constants of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delegatekit_api import Call
from delegatekit_api.nodes import operator_name
from delegatekit_api.quantization import DEQUANTIZE, QUANTIZE
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row, row

from ..ir.encodings import activation_fault, activation_type, weight_fault
from ..ir.values import Value
from .program import Lower, ProgramBuilder

if TYPE_CHECKING:
    from torch.fx import Node


def _quantize(b: ProgramBuilder, call: Call) -> Value:
    quantization = call.quantization
    assert quantization is not None
    return b.quantized(b.value(call["input"]), *activation_type(quantization))


def _dequantize(b: ProgramBuilder, call: Call) -> Value:
    """Integers stay what they are: what needs floats asks for them. Constants become numbers; layers read them apart."""
    source = call["input"]
    if not source.is_constant:
        return b.value(source)
    return Value(b.constant(b.numbers(call.result)), identity(source.rank))


def unit_of(call: Call) -> tuple[Node, ...]:
    """A quantize and the dequantizes that read it, which stand or fall together; nothing for others."""
    if call.operator in DEQUANTIZE and call["input"].is_constant:
        return ()
    maker = call.node if call.operator in QUANTIZE else call["input"].node
    return (maker, *maker.users)


def known_encoding(call: Call) -> str | None:
    """Scales are known; activations are uint8, int8, uint16 or int16, with one scale and the whole range."""
    quantization = call.quantization
    if call.operator in DEQUANTIZE and call["input"].is_constant:
        if quantization is None:
            return weight_fault(None)
        return None if quantization.group is None else weight_fault(quantization)
    return activation_fault(quantization)


def inside(call: Call) -> str | None:
    """Integers stay inside: a quantize is read by dequantizes only, a dequantize reads a quantize or a constant."""
    if call.operator in QUANTIZE:
        users = tuple(call.node.users)
        alone = users and all(user.op == "call_function" and operator_name(user) in DEQUANTIZE for user in users)
        return None if alone else "its integers leave the delegate"
    source = call["input"]
    if source.is_constant:
        return None
    maker = source.producer
    found = maker is not None and maker.operator in QUANTIZE and inside(maker) is None
    return None if found else "its integers come from outside"


_CONDITIONS: Final = (known_encoding, inside)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row(" ".join(sorted(QUANTIZE)), _quantize, *_CONDITIONS, keep=True, passenger=True, integers=True),
    row(" ".join(sorted(DEQUANTIZE)), _dequantize, *_CONDITIONS, keep=True, passenger=True, integers=True),
)
