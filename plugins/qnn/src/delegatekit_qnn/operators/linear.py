"""Linear layers and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row, row

from ..ir.encodings import is_activation, weight_fault
from ..ir.graph import Encoding, Scalar, Tensor
from ..ir.types import DataType
from ..ir.values import Value
from .common import REAL, add, as_result, broadcast, mul
from .moves import tiled
from .program import Lower, ProgramBuilder
from .weights import bias_of, integer_weight, least_scales, weight_of, weights_as_integers

#: So many products of matrices are taken at once.
_MATRICES: Final = 4096


def _connected(
    b: ProgramBuilder, call: Call, x: Value, weight: Operand, bias: Operand | None, *, turned: bool
) -> Value:
    """Rows times a weight of shape (out, in), or (in, out) if it is turned."""
    tensor = b.dense(x)
    order = (1, 0) if turned else (0, 1)
    outs, ins = (weight.shape[axis] for axis in order)
    rows = math.prod(tensor.shape) // ins
    # The operation puts rows of several blocks one below the other itself. Where they are reshaped before it, the
    # library mixes up floats that are then reshaped to as many heads as there are blocks and rows in a block.
    source = b.source(tensor)
    has_blocks = not b.is_fixed and source.rank in (3, 4) and source.shape[-1] == ins
    tensor = source if has_blocks else b.reshaped(tensor, (rows, ins))
    stored, scales = weight_of(b, weight, order, (outs, ins), 0, least_scales(b, call, bias, tensor))
    if stored.encoding is not None and stored.encoding.bits is not None and _is_part(b, tensor):
        # Beside weights of 4 bits, the library (2.49) reads other rows than those of the part.
        assert stored.data is not None
        stored = b.constant(stored.data, stored.datatype, replace(stored.encoding, bits=None))
    offsets = bias_of(b, bias, outs, tensor, scales)
    datatype, encoding = b.result_type(call)
    made = b.emit("FullyConnected", [tensor, stored, offsets], (rows, outs), datatype, encoding)
    shape = tuple(call.result.shape)
    return Value(b.reshaped(made, shape), identity(len(shape)))


#: Operations that take a part of a tensor, and those that are passed over behind one.
_PARTS: Final = ("Gather", "StridedSlice")
_PASSED: Final = ("Cast", "Convert", "Dequantize", "Quantize", "Relu", "ReluMinMax", "Reshape", "Transpose")


def _is_part(b: ProgramBuilder, tensor: Tensor) -> bool:
    """True if 16-bit integers are a part of a larger tensor."""
    makers = {made: node for node in b.graph.nodes for made in node.outputs}
    node = makers.get(tensor)
    while node is not None and node.kind in _PASSED:
        node = makers.get(node.inputs[0])
    return tensor.datatype is DataType.UFIXED16 and node is not None and node.kind in _PARTS


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


#: The middle of 16 bits.
_MIDDLE: Final = 1 << 15


def _is_weight(b: ProgramBuilder, operand: Operand) -> bool:
    """True if a matrix is constant, and in a form that a fully connected layer takes (beside integers, a weight)."""
    if not operand.is_known or not b.is_fixed:
        return operand.is_known
    return operand.integers is not None and weight_fault(operand.quantization) is None


def _linear(b: ProgramBuilder, call: Call) -> Value:
    if not (_is_weight(b, call["weight"]) and (call["bias"] is None or call["bias"].is_known)):
        x, weight = b.activation(call["input"]), b.activation(call["weight"])
        return _multiplied(b, call, x, weight, call["bias"], turned=True)
    return _connected(b, call, b.activation(call["input"]), call["weight"], call["bias"], turned=False)


def _addmm(b: ProgramBuilder, call: Call) -> Value:
    if plain_sum(call) is not None:
        left, right = b.activation(call["mat1"]), b.activation(call["mat2"])
        return _weighted(b, call, _multiplied(b, call, left, right, None, turned=False))
    if not (_is_weight(b, call["mat2"]) and call["self"].is_known and call["self"].rank == 1):
        left, right = b.activation(call["mat1"]), b.activation(call["mat2"])
        return _multiplied(b, call, left, right, call["self"], turned=False)
    return _connected(b, call, b.activation(call["mat1"]), call["mat2"], call["self"], turned=True)


def _weighted(b: ProgramBuilder, call: Call, product: Value) -> Value:
    """A product and a tensor, each times its factor."""
    return add(b, mul(b, product, call["alpha"]), mul(b, b.activation(call["self"]), call["beta"]))


def _summed(b: ProgramBuilder, call: Call) -> Value:
    """The sum of products of matrices: that of them all side by side."""
    left, right = b.activation(call["batch1"]), b.activation(call["batch2"])
    count, rows, shared = left.shape
    wide = Value(b.reshaped(b.dense(left.permuted([1, 0, 2])), (rows, count * shared)), (0, 1))
    high = Value(b.reshaped(b.dense(right), (count * shared, right.shape[2])), (0, 1))
    return _weighted(b, call, _multiplied(b, call, wide, high, None, turned=False))


def _centered(b: ProgramBuilder, value: Value) -> Value:
    """Integers of 16 bits with their zero in the middle, as the processor wants those on the right."""
    encoding = value.tensor.encoding
    if value.tensor.datatype is not DataType.UFIXED16 or encoding is None or encoding.zero_point == _MIDDLE:
        return value
    farthest = max(encoding.zero_point, 2 * _MIDDLE - 1 - encoding.zero_point)
    scale = encoding.scale * farthest / (_MIDDLE - 1)
    return b.quantized(value, DataType.UFIXED16, Encoding((scale,), (_MIDDLE,)))


def _right_name(call: Call) -> str:
    return "mat2" if call.has("mat2") else "other"


def _product(b: ProgramBuilder, call: Call) -> Value:
    left, right = call["self"], call[_right_name(call)]
    if _is_weight(b, right) and right.rank == 2:
        return _connected(b, call, b.activation(left), right, None, turned=True)
    values = [_matrices(b, left, is_right=False), _matrices(b, right, is_right=True)]
    batch = broadcast(*(value.shape[:-2] for value in values))
    if len(batch) > 2:
        # Over five axes the library crashes at products, or refuses them after it said that it takes them.
        values = [_in_one_batch(b, value, batch) for value in values]
        batch = (math.prod(batch),)
    tensors, flags = [], []
    for value in values:
        turned = value.order == (*range(value.rank - 2), value.rank - 1, value.rank - 2)
        tensors.append(value.tensor if turned else b.dense(value))
        flags.append(Scalar(DataType.BOOL, turned))
    datatype, encoding = b.result_type(call)
    shape = (*batch, values[0].shape[-2], values[1].shape[-1])
    made = b.emit("MatMul", tensors, shape, datatype, encoding, transpose_in0=flags[0], transpose_in1=flags[1])
    made = b.reshaped(made, call.result.shape)
    return Value(made, identity(call.result.rank))


def _matrices(b: ProgramBuilder, operand: Operand, *, is_right: bool) -> Value:
    """A factor as matrices: a vector is a row on the left, a column on the right."""
    if b.is_fixed and operand.is_known:
        value = Value(b.symmetric_constant(b.numbers(operand)), identity(operand.rank))
    else:
        value = b.activation(operand)
        value = _centered(b, value) if is_right else value
    if value.rank > 1:
        return value
    count = math.prod(value.shape)
    return Value(b.reshaped(value.tensor, (count, 1) if is_right else (1, count)), (0, 1))


def _in_one_batch(b: ProgramBuilder, value: Value, batch: Sequence[int]) -> Value:
    """Matrices repeated for a whole batch, whose axes are one."""
    own = (1,) * (len(batch) + 2 - value.rank) + value.shape[:-2]
    flat = b.reshaped(b.dense(value), (*own, math.prod(value.shape[-2:])))
    repeated = tiled(b, flat, [new // old for new, old in zip(batch, own, strict=True)] + [1])
    return Value(b.reshaped(repeated, (math.prod(batch), *value.shape[-2:])), (0, 1, 2))


def few_matrices(call: Call) -> str | None:
    """A batch that the library compiles within half a minute: its time grows with the square of their number."""
    left, right = call["self"], call[_right_name(call)]
    many = 1 if right.is_known and right.rank == 2 else math.prod(broadcast(left.shape[:-2], right.shape[:-2]))
    return f"{many} products of matrices: {_MATRICES} are taken" if many > _MATRICES else None


def plain_sum(call: Call) -> str | None:
    """On integers the sum has the factors 1."""
    if call["alpha"] != 1 or call["beta"] != 1:
        return f"alpha = {call['alpha']}, beta = {call['beta']}: 1 is taken"
    return None


def _integer_sum(call: Call) -> str | None:
    return plain_sum(call) or integer_weight("mat2")(call)


def _right(call: Call) -> str | None:
    """Scales of a constant matrix lie along its columns."""
    name = _right_name(call)
    found: Operand = call[name]
    if not found.is_known or found.rank != 2 or is_activation(found.quantization):
        return None
    return weights_as_integers(call, name, 1)


def _weight(call: Call) -> str | None:
    """A matrix; scales of a constant weight lie along its rows."""
    if call["weight"].rank != 2:
        return "its weight is a vector: the processor has matrices"
    return None if is_activation(call["weight"].quantization) else weights_as_integers(call)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "linear.default",
        _linear,
        REAL,
        _weight,
        keep=True,
        fixed=integer_weight("weight"),
        weights=("weight",),
    ),
    row("addmm.default", _addmm, REAL, _right, fixed=_integer_sum, weights=("mat2",)),
    row("addbmm.default", _summed, REAL),
    row("mm.default bmm.default", _product, REAL, _right, few_matrices, fixed=True, weights=("mat2",)),
    row("matmul.default", _product, REAL, _right, few_matrices, keep=True, fixed=True, weights=("other",)),
)
