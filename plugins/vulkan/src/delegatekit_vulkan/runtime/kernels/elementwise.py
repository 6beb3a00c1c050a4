"""Operators that compute each element separately."""

from __future__ import annotations

import math
from typing import Final

from ...ir.graph import Tensor
from ...ir.types import DataType
from ..calls import Kernel, Reader
from ..memory import Value
from ..strided import broadcast, contiguous, padded, tape_error, walk
from ..tape import Tape

#: Numbers of the operations in shaders/binary.comp.
ADD, _SUB, _MUL, _DIV, _FLOOR_DIV, _TRUNC_DIV, _POW, _MIN, _MAX = range(9)
_AND, _OR, _XOR, _BOTH, _EITHER = range(20, 25)
#: Numbers of the operations in shaders/unary.comp.
_ABS, _COS, _EXP, _GELU, _GELU_TANH, _HARDSHRINK, _HARDSWISH, _CLAMP, _NEG, _RELU = range(10)
_SIGMOID, _SIN, _SQRT, _RSQRT, _TANH, _ROUND, _LEAKY_RELU, _LOG10, _POWER = range(10, 19)
_IS_ZERO, _COMPLEMENT = 26, 27
_TO_FLOAT, _TO_INT, _TO_BOOL = range(30, 33)
#: Comparisons in both of them.
_EQ, _NE, _LT, _LE, _GT, _GE = range(10, 16)
_WITH_NUMBER: Final = 10
#: The integer operations of shaders/unary.comp.
_OF_INTEGERS: Final = frozenset((_ABS, _CLAMP, _NEG, _RELU, *range(20, 26), _IS_ZERO, _COMPLEMENT, _TO_FLOAT, _TO_BOOL))
_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1


# -- of one tensor -----------------------------------------------------------------------------------------------------


def unary(tape: Tape, operation: int, source: Value, target: Value, first: float = 0, second: float = 0) -> None:
    """Dispatch a function of one tensor; the numbers are of the source's kind."""
    if source.count != target.count:
        raise tape_error(tape, f"declares the result {target.shape}, computes {source.shape}")
    if not source.is_float and operation not in _OF_INTEGERS:
        raise tape_error(tape, "is a function of floating-point numbers, given integers")
    numbers = (float(first), float(second)) if source.is_float else (int(first), int(second))
    groups = -(-target.count // 4)
    shader = "unary_float" if source.is_float else "unary_int"
    tape.dispatch(shader, (source, target), [groups, *numbers], (target.is_half, operation, 4), items=groups)


def _function(operation: int, numbers: int = 0) -> Kernel:
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
    operations = {"none": _GELU, "tanh": _GELU_TANH}
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
    unary(tape, _CLAMP, value, _like(tape, call, value), low, high)


def _power(tape: Tape, call: Reader) -> None:
    value, exponent = call.tensor(0), call.number(1)
    target = _like(tape, call, value)
    if exponent == 2:
        binary(tape, _MUL, value, value, target)
    else:
        unary(tape, _POWER, value, target, exponent)


def _compared(operation: int) -> Kernel:
    """Each element compared with a number."""

    def kernel(tape: Tape, call: Reader) -> None:
        value = call.tensor(0)
        raw = call.raw(1)
        number = float(raw) if isinstance(raw, bool) else call.number(1)
        if not value.is_float and not (number.is_integer() and _INT_MIN <= number <= _INT_MAX):
            raise call.error(f"compares integers with {number}")
        unary(tape, operation + _WITH_NUMBER, value, _truths(tape, call, value.shape), number)

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
    unary(tape, _EQ + _WITH_NUMBER if value.is_float else _IS_ZERO, value, target)


def _complement(tape: Tape, call: Reader) -> None:
    value = call.tensor(0)
    if value.is_float:
        raise call.error("has no bits of floating-point numbers")
    unary(tape, _IS_ZERO if value.datatype is DataType.BOOL else _COMPLEMENT, value, _like(tape, call, value))


def convert(tape: Tape, call: Reader, value: Value) -> None:
    """Let the result be a value in its declared type; the value's own memory if nothing changes."""
    result = call.result
    if not isinstance(result, Tensor):
        raise call.error("its result is not a tensor")
    wanted, found = result.datatype, value.datatype
    if wanted in (DataType.INT8, DataType.UINT8) and found is not wanted:
        raise call.error(f"converts {found.name} to {wanted.name}")
    if wanted is DataType.BOOL:
        operation = None if found is DataType.BOOL else _TO_BOOL
    elif wanted.is_float:
        rounds = wanted is DataType.FLOAT16 and found is not wanted
        operation = _TO_FLOAT if rounds or not value.is_float else None
    else:
        operation = _TO_INT if value.is_float else None
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


def binary(tape: Tape, operation: int, left: Value, right: Value, target: Value, factor: float = 1) -> None:
    """Dispatch a function of two tensors of one kind, broadcast against each other."""
    if left.is_float != right.is_float:
        raise tape_error(tape, "has operands of different kinds")
    if left.is_float and operation >= _AND:
        raise tape_error(tape, "is a function of integers, given floating-point numbers")
    if not left.is_float and operation == _DIV:
        raise tape_error(tape, "divides integers without rounding")
    if operation < _EQ and target.is_float != left.is_float:
        raise tape_error(tape, "has a result of another kind than its operands")
    if operation >= _EQ and target.is_float:
        raise tape_error(tape, "has floating-point numbers as booleans")
    steps = walk(tape, target.shape, left.shape, right.shape)
    number = float(factor) if left.is_float else int(factor)
    push = [steps.items, number, *padded(steps.sizes), *padded(steps.steps[0]), *padded(steps.steps[1])]
    shader = "binary_float" if left.is_float else "binary_int"
    constants = (target.is_half, operation, len(steps.sizes), steps.wide, *steps.single)
    tape.dispatch(shader, (left, right, target), push, constants, items=steps.items)


def _binary(operation: int, *, alpha: bool = False) -> Kernel:
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
    modes = {None: _DIV, "floor": _FLOOR_DIV, "trunc": _TRUNC_DIV}
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
    if len(steps.sizes) > WHERE_AXES:
        values = tuple(contiguous(tape, value, shape) for value in values)  # type: ignore[assignment]
        steps = walk(tape, shape, shape, shape, shape)
    push = [steps.items, *padded(steps.sizes, WHERE_AXES)]
    for item in steps.steps:
        push += padded(item, WHERE_AXES)
    constants = (target.is_half, len(steps.sizes), steps.wide, *steps.single)
    tape.dispatch("where", (*values, target), push, constants, items=steps.items)


#: Axes in shaders/where.comp.
WHERE_AXES: Final = 7

KERNELS: Final[dict[str, Kernel]] = {
    "aten.abs.default": _function(_ABS),
    "aten.cos.default": _function(_COS),
    "aten.exp.default": _function(_EXP),
    "aten.gelu.default": _gelu,
    "aten.hardshrink.default": _function(_HARDSHRINK, 1),
    "aten.hardswish.default": _function(_HARDSWISH),
    "aten.hardtanh.default": _function(_CLAMP, 2),
    "aten.clamp.default": _clamp,
    "aten.neg.default": _function(_NEG),
    "aten.relu.default": _function(_RELU),
    "aten.sigmoid.default": _function(_SIGMOID),
    "aten.sin.default": _function(_SIN),
    "aten.sqrt.default": _function(_SQRT),
    "aten.rsqrt.default": _function(_RSQRT),
    "aten.tanh.default": _function(_TANH),
    "aten.round.default": _function(_ROUND),
    "aten.leaky_relu.default": _function(_LEAKY_RELU, 1),
    "aten.log10.default": _function(_LOG10),
    "aten.pow.Tensor_Scalar": _power,
    "aten.eq.Scalar": _compared(_EQ),
    "aten.ne.Scalar": _compared(_NE),
    "aten.lt.Scalar": _compared(_LT),
    "aten.le.Scalar": _compared(_LE),
    "aten.gt.Scalar": _compared(_GT),
    "aten.ge.Scalar": _compared(_GE),
    "aten.logical_not.default": _not,
    "aten.bitwise_not.default": _complement,
    "aten._to_copy.default": _converted,
    "dim_order_ops._to_dim_order_copy.default": _converted,
    "aten.copy.default": _copied,
    "aten.add.Tensor": _binary(ADD, alpha=True),
    "aten.sub.Tensor": _binary(_SUB, alpha=True),
    "aten.mul.Tensor": _binary(_MUL),
    "aten.div.Tensor": _binary(_DIV),
    "aten.div.Tensor_mode": _divided,
    "aten.pow.Tensor_Tensor": _binary(_POW),
    "aten.minimum.default": _binary(_MIN),
    "aten.eq.Tensor": _binary(_EQ),
    "aten.lt.Tensor": _binary(_LT),
    "aten.le.Tensor": _binary(_LE),
    "aten.gt.Tensor": _binary(_GT),
    "aten.ge.Tensor": _binary(_GE),
    "aten.bitwise_and.Tensor": _binary(_AND),
    "aten.bitwise_or.Tensor": _binary(_OR),
    "aten.logical_and.default": _binary(_BOTH),
    "aten.logical_or.default": _binary(_EITHER),
    "aten.where.self": _where,
}
