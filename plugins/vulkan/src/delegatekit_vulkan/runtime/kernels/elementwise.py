"""Operators that compute each element by itself."""

from __future__ import annotations

from typing import Final

from ..strided import AXES, broadcast, broadcast_strides, joined, padded, tape_error
from ..tape import Kernel, Reader, Tape, Value

#: Numbers of the operations in shaders/binary.comp.
_ADD, _SUB, _MUL, _DIV, _FLOOR_DIV, _TRUNC_DIV, _POW, _MIN, _MAX = range(9)
_EQ, _NE, _LT, _LE, _GT, _GE = range(10, 16)
_AND, _OR, _XOR, _BOTH, _EITHER = range(20, 25)


def binary(tape: Tape, operation: int, left: Value, right: Value, target: Value, factor: float = 1) -> None:
    """Dispatch a function of two tensors of one kind, broadcast against each other."""
    if left.is_float != right.is_float:
        raise tape_error(tape, "has operands of different kinds")
    shape = broadcast(left.shape, right.shape)
    if shape is None:
        raise tape_error(tape, f"has operands of the sizes {left.shape} and {right.shape}")
    if shape != target.shape:
        raise tape_error(tape, f"declares the result {target.shape}, computes {shape}")
    sizes, (first, second) = joined(shape, broadcast_strides(left.shape, shape), broadcast_strides(right.shape, shape))
    if len(sizes) > AXES:
        raise tape_error(tape, f"has operands that repeat along {len(sizes)} axes: {AXES} are the most")
    flat = len(sizes) <= 1 and first == second == [1] * len(sizes)
    number = float(factor) if left.is_float else int(factor)
    push = [target.count, number, *padded(sizes, 1), *padded(first), *padded(second)]
    shader = "binary_float" if left.is_float else "binary_int"
    rank = 0 if flat else max(len(sizes), 1)
    tape.dispatch(shader, (left, right, target), push, (target.is_half, operation, rank), items=target.count)


def _binary(operation: int, *, alpha: bool = False) -> Kernel:
    def kernel(tape: Tape, call: Reader) -> None:
        left, right = call.tensor(0), call.tensor(1)
        shape = broadcast(left.shape, right.shape)
        if shape is None:
            raise call.error(f"has operands of the sizes {left.shape} and {right.shape}")
        factor = call.float(2, 1) if alpha else 1
        binary(tape, operation, left, right, tape.result(call.result, shape), factor)

    return kernel


def _divided(tape: Tape, call: Reader) -> None:
    modes = {None: _DIV, "floor": _FLOOR_DIV, "trunc": _TRUNC_DIV}
    mode = call.raw(2)
    if mode not in modes:
        raise call.error(f"has the rounding {mode!r:.40}")
    _binary(modes[mode])(tape, call)


KERNELS: Final[dict[str, Kernel]] = {
    "aten.add.Tensor": _binary(_ADD, alpha=True),
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
}
