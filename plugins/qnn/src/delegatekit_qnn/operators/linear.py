"""Linear layers and products of matrices."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar
from ..ir.types import DataType
from ..ir.values import Value
from .common import REAL, add, as_result
from .convolution import bias_of, integer_weight, weight_of, weights_as_integers
from .program import Lower, ProgramBuilder


def _connected(
    b: ProgramBuilder, call: Call, x: Value, weight: Operand, bias: Operand | None, *, turned: bool
) -> Value:
    """Rows times a weight of shape (out, in), or (in, out) if it is turned."""
    tensor = b.dense(x)
    order = (1, 0) if turned else (0, 1)
    outs, ins = (weight.shape[axis] for axis in order)
    rows = math.prod(tensor.shape) // ins
    tensor = b.reshaped(tensor, (rows, ins))
    stored, scales = weight_of(b, weight, order, (outs, ins), 0)
    offsets = bias_of(b, bias, outs, tensor, scales)
    datatype, encoding = b.result_type(call)
    made = b.emit("FullyConnected", [tensor, stored, offsets], (rows, outs), datatype, encoding)
    shape = tuple(call.result.shape)
    return Value(b.reshaped(made, shape), identity(len(shape)))


def _multiplied(
    b: ProgramBuilder, call: Call, left: Value, right: Value, bias: Operand | None, *, turned: bool
) -> Value:
    """A product of computed matrices and a bias."""
    shape = tuple(call.result.shape)
    rows = math.prod(left.shape[:-1])
    left = Value(b.reshaped(b.dense(left), (rows, left.shape[-1])), (0, 1))
    datatype, encoding = b.result_type(call) if bias is None else (DataType.FLOAT32, None)
    if bias is not None:
        left, right = b.floats(left), b.floats(right)
    plain, flag = Scalar(DataType.BOOL, False), Scalar(DataType.BOOL, turned)
    columns = right.shape[0] if turned else right.shape[1]
    operands = [b.dense(left), b.dense(right)]
    made = b.emit("MatMul", operands, (rows, columns), datatype, encoding, transpose_in0=plain, transpose_in1=flag)
    found = Value(b.reshaped(made, shape), identity(len(shape)))
    return found if bias is None else as_result(b, call, add(b, found, b.floats(b.activation(bias))))


def _linear(b: ProgramBuilder, call: Call) -> Value:
    if not (call["weight"].is_known and (call["bias"] is None or call["bias"].is_known)):
        x, weight = b.activation(call["input"]), b.activation(call["weight"])
        return _multiplied(b, call, x, weight, call["bias"], turned=True)
    return _connected(b, call, b.activation(call["input"]), call["weight"], call["bias"], turned=False)


def _addmm(b: ProgramBuilder, call: Call) -> Value:
    if not (call["mat2"].is_known and call["self"].is_known and call["self"].rank == 1):
        left, right = b.activation(call["mat1"]), b.activation(call["mat2"])
        return _multiplied(b, call, left, right, call["self"], turned=False)
    return _connected(b, call, b.activation(call["mat1"]), call["mat2"], call["self"], turned=True)


def _product(b: ProgramBuilder, call: Call) -> Value:
    left, right = call["self"], call["mat2"] if call.has("mat2") else call["other"]
    if right.is_known and right.rank == 2 and (not b.is_fixed or right.integers is not None):
        return _connected(b, call, b.activation(left), right, None, turned=True)
    tensors, flags = [], []
    for item in (left, right):
        value = b.activation(item)
        turned = value.rank >= 2 and value.order == (*range(value.rank - 2), value.rank - 1, value.rank - 2)
        tensors.append(value.tensor if turned else b.dense(value))
        flags.append(Scalar(DataType.BOOL, bool(turned)))
    datatype, encoding = b.result_type(call)
    shape = tuple(call.result.shape)
    made = b.emit("MatMul", tensors, shape, datatype, encoding, transpose_in0=flags[0], transpose_in1=flags[1])
    return Value(made, identity(len(shape)))


def plain_sum(call: Call) -> str | None:
    """The sum has the factors 1."""
    if call["alpha"] != 1 or call["beta"] != 1:
        return f"alpha = {call['alpha']}, beta = {call['beta']}: 1 is taken"
    return None


def _right(call: Call) -> str | None:
    """Scales of a constant matrix lie along its columns."""
    name = "mat2" if call.has("mat2") else "other"
    found: Operand = call[name]
    return weights_as_integers(call, name, 1) if found.is_known and found.rank == 2 else None


def same_rank(call: Call) -> str | None:
    """Both have at least two axes."""
    found = call["self"], call["other"]
    return None if min(item.rank for item in found) >= 2 else "an operand has one axis"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "linear.default",
        _linear,
        REAL,
        weights_as_integers,
        keep=True,
        fixed=integer_weight("weight"),
        weights=("weight",),
    ),
    row("addmm.default", _addmm, REAL, plain_sum, _right, fixed=integer_weight("mat2"), weights=("mat2",)),
    row("mm.default bmm.default", _product, REAL, _right, fixed=True, weights=("mat2",)),
    row("matmul.default", _product, REAL, same_rank, _right, keep=True, fixed=True, weights=("other",)),
)
