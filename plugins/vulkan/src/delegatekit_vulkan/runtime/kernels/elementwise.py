"""Operators that compute each element separately."""

from __future__ import annotations

import math
from typing import Final

from ...ir.graph import Tensor
from ...ir.types import DataType
from ...shaders.numbers import Binary, Limit, Unary
from ..calls import Kernel, Reader
from ..memory import Value
from ..strided import broadcast, contiguous, padded, tape_error, walk
from ..tape import Tape

#: The integer operations of shaders/unary.comp.
_OF_INTEGERS: Final = frozenset(
    (Unary.ABS, Unary.CLAMP, Unary.NEG, Unary.RELU, Unary.TO_FLOAT, Unary.TO_BOOL)
) | frozenset(item for item in Unary if Unary.EQ <= item <= Unary.COMPLEMENT)
_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1


# -- of one tensor -----------------------------------------------------------------------------------------------------


def unary(tape: Tape, operation: Unary, source: Value, target: Value, first: float = 0, second: float = 0) -> None:
    """Dispatch a function of one tensor; the numbers are of the source's kind."""
    if source.count != target.count:
        raise tape_error(tape, f"declares the result {target.shape}, computes {source.shape}")
    if not source.is_float and operation not in _OF_INTEGERS:
        raise tape_error(tape, "is a function of floating-point numbers, given integers")
    numbers = (float(first), float(second)) if source.is_float else (int(first), int(second))
    groups = -(-target.count // 4)
    shader = "unary_float" if source.is_float else "unary_int"
    tape.dispatch(shader, (source, target), [groups, *numbers], (target.is_half, operation, 4), items=groups)


def _function(operation: Unary, numbers: int = 0) -> Kernel:
    """A function with this many numbers after the tensor."""

    def kernel(tape: Tape, call: Reader) -> None:
        value = call.tensor(0)
        unary(tape, operation, value, _like(tape, call, value), *(call.number(1 + index) for index in range(numbers)))

    return kernel


def _like(tape: Tape, call: Reader, value: Value) -> Value:
    """The result, of the operand's shape and kind."""
    target = tape.result(call.result, value.shape)
    if target.is_float != value.is_float:
        raise call.error("has a result of another kind than its operand")
    return target


def _gelu(tape: Tape, call: Reader) -> None:
    operations = {"none": Unary.GELU, "tanh": Unary.GELU_TANH}
    form = "none" if call.is_none(1) else call.raw(1)
    if not isinstance(form, str) or form not in operations:
        raise call.error(f"has the approximation {form!r:.40}")
    value = call.tensor(0)
    unary(tape, operations[form], value, _like(tape, call, value))


def _clamp(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    low, high = call.number(1, -math.inf), call.number(2, math.inf)
    if not value.is_float:
        low, high = (float(min(max(bound, _INT_MIN), _INT_MAX)) for bound in (low, high))
        if not (low.is_integer() and high.is_integer()):
            raise call.error(f"has the bounds {low} and {high} for integers")
    unary(tape, Unary.CLAMP, value, _like(tape, call, value), low, high)


def _power(tape: Tape, call: Reader) -> None:
    value, exponent = call.tensor(0), call.number(1)
    target = _like(tape, call, value)
    if exponent == 2:
        binary(tape, Binary.MUL, value, value, target)
    else:
        unary(tape, Unary.POWER, value, target, exponent)


def _compared(operation: Unary) -> Kernel:
    """Each element compared with a number."""

    def kernel(tape: Tape, call: Reader) -> None:
        value = call.tensor(0)
        raw = call.raw(1)
        number = float(raw) if isinstance(raw, bool) else call.number(1)
        if not value.is_float and not (number.is_integer() and _INT_MIN <= number <= _INT_MAX):
            raise call.error(f"compares integers with {number}")
        unary(tape, operation, value, _truths(tape, call, value.shape), number)

    return kernel


def _truths(tape: Tape, call: Reader, shape: tuple[int, ...]) -> Value:
    """A result of zeros and ones."""
    target = tape.result(call.result, shape)
    if target.is_float:
        raise call.error("has floating-point numbers as booleans")
    return target


def _not(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    target = _truths(tape, call, value.shape)
    unary(tape, Unary.EQ if value.is_float else Unary.IS_ZERO, value, target)


def _complement(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    if value.is_float:
        raise call.error("has no bits of floating-point numbers")
    unary(tape, Unary.IS_ZERO if value.datatype is DataType.BOOL else Unary.COMPLEMENT, value, _like(tape, call, value))


def convert(tape: Tape, call: Reader, value: Value) -> None:
    """Let the result be a value in its declared type; the value's own memory if nothing changes."""
    result = call.result
    if not isinstance(result, Tensor):
        raise call.error("its result is not a tensor")
    wanted, found = result.datatype, value.datatype
    if wanted in (DataType.INT8, DataType.UINT8) and found is not wanted:
        raise call.error(f"converts {found.name} to {wanted.name}")
    if wanted is DataType.BOOL:
        operation = None if found is DataType.BOOL else Unary.TO_BOOL
    elif wanted.is_float:
        rounds = wanted is DataType.FLOAT16 and found is not wanted
        operation = Unary.TO_FLOAT if rounds or not value.is_float else None
    else:
        operation = Unary.TO_INT if value.is_float else None
    if operation is None:
        tape.alias(result, value, value.shape)
    else:
        unary(tape, operation, value, tape.result(result, value.shape))


def _converted(tape: Tape, call: Reader) -> None:
    convert(tape, call, call.tensor(0))


def _copied(tape: Tape, call: Reader) -> None:
    shape, value = call.tensor(0).shape, call.tensor(1)
    if broadcast(shape, value.shape) != shape:
        raise call.error(f"copies {value.shape} to {shape}")
    convert(tape, call, contiguous(tape, value, shape))


# -- of several --------------------------------------------------------------------------------------------------------


def binary(tape: Tape, operation: Binary, left: Value, right: Value, target: Value, factor: float = 1) -> None:
    """Dispatch a function of two tensors of one kind, broadcast against each other."""
    if left.is_float != right.is_float:
        raise tape_error(tape, "has operands of different kinds")
    if left.is_float and operation >= Binary.AND:
        raise tape_error(tape, "is a function of integers, given floating-point numbers")
    if not left.is_float and operation == Binary.DIV:
        raise tape_error(tape, "divides integers without rounding")
    if operation < Binary.EQ and target.is_float != left.is_float:
        raise tape_error(tape, "has a result of another kind than its operands")
    if operation >= Binary.EQ and target.is_float:
        raise tape_error(tape, "has floating-point numbers as booleans")
    steps = walk(tape, target.shape, left.shape, right.shape)
    number = float(factor) if left.is_float else int(factor)
    push = [steps.items, number, *padded(steps.sizes), *padded(steps.steps[0]), *padded(steps.steps[1])]
    shader = "binary_float" if left.is_float else "binary_int"
    constants = (target.is_half, operation, len(steps.sizes), steps.wide, *steps.single)
    tape.dispatch(shader, (left, right, target), push, constants, items=steps.items)


def _binary(operation: Binary, *, alpha: bool = False) -> Kernel:
    def kernel(tape: Tape, call: Reader) -> None:
        left, right = call.tensor(0), call.tensor(1)
        shape = broadcast(left.shape, right.shape)
        if shape is None:
            raise call.error(f"has operands of the sizes {left.shape} and {right.shape}")
        factor = call.number(2) if alpha else 1
        if not left.is_float and not (float(factor).is_integer() and _INT_MIN <= factor <= _INT_MAX):
            raise call.error(f"multiplies integers by {factor}")
        binary(tape, operation, left, right, tape.result(call.result, shape), factor)

    return kernel


def _divided(tape: Tape, call: Reader) -> None:
    modes = {None: Binary.DIV, "floor": Binary.FLOOR_DIV, "trunc": Binary.TRUNC_DIV}
    mode = call.raw(2)
    if not (mode is None or isinstance(mode, str)) or mode not in modes:
        raise call.error(f"has the rounding {mode!r:.40}")
    _binary(modes[mode])(tape, call)


def _where(tape: Tape, call: Reader) -> None:
    condition, left, right = call.tensor(0), call.tensor(1), call.tensor(2)
    if condition.is_float or left.is_float != right.is_float:
        raise call.error("has a condition or operands of different kinds")
    shape = broadcast(condition.shape, left.shape, right.shape)
    if shape is None:
        raise call.error(f"has operands of the sizes {condition.shape}, {left.shape} and {right.shape}")
    target = tape.result(call.result, shape)
    if target.is_float != left.is_float:
        raise call.error("has a result of another kind than its operands")
    values = (condition, left, right)
    # Three operands leave room for fewer axes; operands that repeat along more are expanded in memory.
    steps = walk(tape, shape, *(value.shape for value in values), most=None)
    if len(steps.sizes) > Limit.WHERE_AXES:
        values = tuple(contiguous(tape, value, shape) for value in values)  # type: ignore[assignment]
        steps = walk(tape, shape, shape, shape, shape)
    push = [steps.items, *padded(steps.sizes, Limit.WHERE_AXES)]
    for item in steps.steps:
        push += padded(item, Limit.WHERE_AXES)
    constants = (target.is_half, len(steps.sizes), steps.wide, *steps.single)
    tape.dispatch("where", (*values, target), push, constants, items=steps.items)


KERNELS: Final[dict[str, Kernel]] = {
    "aten.abs.default": _function(Unary.ABS),
    "aten.cos.default": _function(Unary.COS),
    "aten.exp.default": _function(Unary.EXP),
    "aten.gelu.default": _gelu,
    "aten.hardshrink.default": _function(Unary.HARDSHRINK, 1),
    "aten.hardswish.default": _function(Unary.HARDSWISH),
    "aten.hardtanh.default": _function(Unary.CLAMP, 2),
    "aten.clamp.default": _clamp,
    "aten.neg.default": _function(Unary.NEG),
    "aten.relu.default": _function(Unary.RELU),
    "aten.sigmoid.default": _function(Unary.SIGMOID),
    "aten.sin.default": _function(Unary.SIN),
    "aten.sqrt.default": _function(Unary.SQRT),
    "aten.rsqrt.default": _function(Unary.RSQRT),
    "aten.tanh.default": _function(Unary.TANH),
    "aten.round.default": _function(Unary.ROUND),
    "aten.leaky_relu.default": _function(Unary.LEAKY_RELU, 1),
    "aten.log10.default": _function(Unary.LOG10),
    "aten.pow.Tensor_Scalar": _power,
    "aten.eq.Scalar": _compared(Unary.EQ),
    "aten.ne.Scalar": _compared(Unary.NE),
    "aten.lt.Scalar": _compared(Unary.LT),
    "aten.le.Scalar": _compared(Unary.LE),
    "aten.gt.Scalar": _compared(Unary.GT),
    "aten.ge.Scalar": _compared(Unary.GE),
    "aten.logical_not.default": _not,
    "aten.bitwise_not.default": _complement,
    "aten._to_copy.default": _converted,
    "dim_order_ops._to_dim_order_copy.default": _converted,
    "aten.copy.default": _copied,
    "aten.add.Tensor": _binary(Binary.ADD, alpha=True),
    "aten.sub.Tensor": _binary(Binary.SUB, alpha=True),
    "aten.mul.Tensor": _binary(Binary.MUL),
    "aten.div.Tensor": _binary(Binary.DIV),
    "aten.div.Tensor_mode": _divided,
    "aten.pow.Tensor_Tensor": _binary(Binary.POW),
    "aten.minimum.default": _binary(Binary.MIN),
    "aten.eq.Tensor": _binary(Binary.EQ),
    "aten.lt.Tensor": _binary(Binary.LT),
    "aten.le.Tensor": _binary(Binary.LE),
    "aten.gt.Tensor": _binary(Binary.GT),
    "aten.ge.Tensor": _binary(Binary.GE),
    "aten.bitwise_and.Tensor": _binary(Binary.AND),
    "aten.bitwise_or.Tensor": _binary(Binary.OR),
    "aten.logical_and.default": _binary(Binary.BOTH),
    "aten.logical_or.default": _binary(Binary.EITHER),
    "aten.where.self": _where,
}
