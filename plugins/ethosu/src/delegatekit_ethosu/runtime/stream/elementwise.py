"""Elementwise operations of one and two operands."""

from __future__ import annotations

import numpy as np

from delegatekit_api import ExecutionError

from .arithmetic import finish, scale
from .memory import Integers, Memory
from .operations import Elementwise, ElementwiseMode, FeatureMap, Rounding


def elementwise(operation: Elementwise, memory: Memory) -> None:
    """Execute an elementwise operation."""
    where, ofm = operation.where, operation.ofm
    first = memory.read(operation.ifm, where) - operation.ifm.zero_point
    second = _second(operation, memory)
    if operation.reverse:
        first, second = second, first
    if operation.operand_scales is not None:
        first, second = (
            scale(values, factor.multiplier, factor.shift, factor.rounding)
            for values, factor in zip((first, second), operation.operand_scales, strict=True)
        )
    results = np.broadcast_to(_compute(operation, first, second), ofm.shape)
    if operation.scale is not None:
        results = scale(results, operation.scale.multiplier, operation.scale.shift, operation.scale.rounding)
    memory.store(ofm, finish(results, ofm, operation.activation, memory.internal, where), where)


def _second(operation: Elementwise, memory: Memory) -> Integers:
    """The second operand: for operations of one operand a zero that is not used."""
    if isinstance(operation.ifm2, FeatureMap):
        return memory.read(operation.ifm2, operation.where) - operation.ifm2.zero_point
    return np.full((1, 1, 1), operation.ifm2 or 0, np.int64)


def _compute(operation: Elementwise, first: Integers, second: Integers) -> Integers:
    match operation.mode:
        case ElementwiseMode.MUL:
            return first * second
        case ElementwiseMode.ADD:
            return first + second
        case ElementwiseMode.SUB:
            return first - second
        case ElementwiseMode.MIN:
            return np.minimum(first, second)
        case ElementwiseMode.MAX:
            return np.maximum(first, second)
        case ElementwiseMode.ABS:
            return np.abs(first)
        case ElementwiseMode.CLZ:
            return _leading_zeros(first)
        case ElementwiseMode.SHR:
            return _shift_right(first, _places(second, operation.where), operation.rounding)
        case ElementwiseMode.SHL:
            # Bits beyond 32 are lost.
            shifted = first << _places(second, operation.where)
            return (shifted & 0xFFFFFFFF) - ((shifted & 0x80000000) << 1)
    raise AssertionError(operation.mode)


def _places(shift: Integers, where: str) -> Integers:
    """The shift: the NPU's behavior beyond 31 is unknown."""
    if shift.min() < 0 or shift.max() > 31:
        raise ExecutionError(f"a shift by {shift.min()} to {shift.max()} is unknown", where=where)
    return shift


def _shift_right(values: Integers, shift: Integers, rounding: Rounding) -> Integers:
    """Shift right, rounding half up, or down in the other mode, which the compiler sets for shifts without rounding."""
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0) if rounding is Rounding.NATURAL else 0
    return (values + half) >> shift


def _leading_zeros(values: Integers) -> Integers:
    """The number of leading zeros in 32 bits."""
    bits: Integers = np.frexp(values & 0xFFFFFFFF)[1].astype(np.int64)
    return 32 - bits
