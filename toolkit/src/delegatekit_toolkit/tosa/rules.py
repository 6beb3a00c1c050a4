"""TOSA's rules for the operands of an operation, and the shape and element type of its result.

Only those that follow from shapes, types and constant operands; limits of a profile or device are not checked here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from delegatekit_api import LoweringError

from . import operators as op
from .tensors import Tensor
from .types import DType, ResizeMode, Rounding

Shape = tuple[int, ...]
Result = tuple[Shape, DType]
Rule = Callable[[Any, Sequence[Tensor]], Result]

#: Types whose zero points may differ from 0.
_WITH_ZERO_POINT: Final = (DType.INT8, DType.INT16)
#: Element type and entries of a table -> element type of the result.
_TABLES: Final = {(DType.INT8, DType.INT8, 256): DType.INT8, (DType.INT16, DType.INT16, 513): DType.INT32}
_RULES: Final[dict[type[op.Operator], Rule]] = {}


def result_of(operator: op.Operator, inputs: Sequence[Tensor]) -> Result:
    """Shape and element type of an operation's result. Raises LoweringError with the violated rule."""
    return _RULES[type(operator)](operator, inputs)


def _rule(*kinds: type[op.Operator]) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return add


def _fail(what: str) -> NoReturn:
    raise LoweringError(what)


def _rank(tensor: Tensor, rank: int) -> None:
    if len(tensor.shape) != rank:
        _fail(f"{tensor.name} has {len(tensor.shape)} axes, not {rank}")


def _sizes(tensor: Tensor, count: int) -> Shape:
    """The numbers of a SHAPE operand."""
    if tensor.dtype != DType.SHAPE or tensor.data is None:
        _fail(f"{tensor.name} is not a constant SHAPE")
    if tensor.size != count:
        _fail(f"{tensor.name} has {tensor.size} numbers, not {count}")
    return tuple(map(int, tensor.data))


def _axis(axis: int, tensor: Tensor) -> int:
    if not 0 <= axis < len(tensor.shape):
        _fail(f"axis {axis} is not one of the {len(tensor.shape)} of {tensor.name}")
    return axis


def _zero_point(zero: Tensor, of: DType) -> None:
    if zero.size != 1 or zero.dtype != of:
        _fail(f"the zero point {zero.name} is {zero.size} of {zero.dtype.name}, not one of {of.name}")
    if zero.data is not None and of not in _WITH_ZERO_POINT and zero.data.any():
        _fail(f"the zero point of {of.name} must be 0")


def _replaced(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _windows(size: int, before: int, after: int, reach: int, stride: int) -> int:
    """The number of windows that span this many elements; the windows must end exactly where the padded input does."""
    if stride < 1 or min(before, after) < 0:
        _fail(f"stride {stride} or padding {before}, {after} is too small")
    room = size + before + after - reach
    if room < 0 or room % stride:
        _fail(f"windows of {reach} in steps of {stride} do not end where {size} elements with {before + after} more do")
    return room // stride + 1


def _same(operator: op.Operator, inputs: Sequence[Tensor]) -> Result:
    return inputs[0].shape, inputs[0].dtype


_rule(
    *(op.Erf, op.Sigmoid, op.Tanh, op.Abs, op.BitwiseNot, op.Ceil, op.Clz, op.Cos, op.Exp, op.Floor, op.Log),
    *(op.LogicalNot, op.Reciprocal, op.Rsqrt, op.Sin, op.Identity),
)(_same)


# -- elementwise -----------------------------------------------------------------------------------------------------


def _broadcast(tensors: Sequence[Tensor]) -> Shape:
    """The common shape of operands of one rank."""
    if len({len(tensor.shape) for tensor in tensors}) != 1:
        _fail("the operands have different numbers of axes: " + ", ".join(str(list(item.shape)) for item in tensors))
    shape = []
    for sizes in zip(*(tensor.shape for tensor in tensors), strict=True):
        if len(set(sizes) - {1}) > 1:
            _fail("the operands' sizes do not fit: " + ", ".join(str(list(item.shape)) for item in tensors))
        shape.append(max(sizes))
    return tuple(shape)


def _one_type(tensors: Sequence[Tensor]) -> DType:
    if len({tensor.dtype for tensor in tensors}) != 1:
        _fail("the operands are of different types: " + ", ".join(tensor.dtype.name for tensor in tensors))
    return tensors[0].dtype


@_rule(
    *(op.Add, op.Sub, op.Maximum, op.Minimum, op.Pow, op.Intdiv, op.ArithmeticRightShift),
    *(op.BitwiseAnd, op.BitwiseOr, op.BitwiseXor, op.LogicalLeftShift, op.LogicalRightShift),
    *(op.LogicalAnd, op.LogicalOr, op.LogicalXor),
)
def _elementwise(operator: op.Operator, inputs: Sequence[Tensor]) -> Result:
    return _broadcast(inputs), _one_type(inputs)


@_rule(op.Equal, op.Greater, op.GreaterEqual)
def _comparison(operator: op.Operator, inputs: Sequence[Tensor]) -> Result:
    _one_type(inputs)
    return _broadcast(inputs), DType.BOOL


@_rule(op.Mul)
def _mul(operator: op.Mul, inputs: Sequence[Tensor]) -> Result:
    first, second, shift = inputs
    type_ = _one_type((first, second))
    if shift.dtype != DType.INT8 or shift.size != 1:
        _fail("the shift is not one int8")
    if shift.data is not None and shift.data.any() and type_ != DType.INT32:
        _fail(f"a product of {type_.name} is not shifted")
    return _broadcast((first, second)), DType.INT32 if type_ in (DType.INT8, DType.INT16) else type_


@_rule(op.Select)
def _select(operator: op.Select, inputs: Sequence[Tensor]) -> Result:
    if inputs[0].dtype != DType.BOOL:
        _fail(f"chooses by {inputs[0].dtype.name}, not BOOL")
    return _broadcast(inputs), _one_type(inputs[1:])


@_rule(op.Negate)
def _negate(operator: op.Negate, inputs: Sequence[Tensor]) -> Result:
    for zero in inputs[1:]:
        _zero_point(zero, inputs[0].dtype)
    return inputs[0].shape, inputs[0].dtype


@_rule(op.Clamp)
def _clamp(operator: op.Clamp, inputs: Sequence[Tensor]) -> Result:
    if operator.minimum > operator.maximum:
        _fail(f"the bounds {operator.minimum} and {operator.maximum} are in the wrong order")
    return inputs[0].shape, inputs[0].dtype


@_rule(op.Table)
def _table(operator: op.Table, inputs: Sequence[Tensor]) -> Result:
    source, table = inputs
    result = _TABLES.get((source.dtype, table.dtype, table.size))
    if result is None:
        _fail(f"a table of {table.size} {table.dtype.name} is not for {source.dtype.name}")
    return source.shape, result


@_rule(op.Cast)
def _cast(operator: op.Cast, inputs: Sequence[Tensor]) -> Result:
    # The type is the result's: the caller compares shapes only.
    return inputs[0].shape, DType.SHAPE


@_rule(op.Rescale)
def _rescale(operator: op.Rescale, inputs: Sequence[Tensor]) -> Result:
    source, multiplier, shift, input_zero, output_zero = inputs
    count = source.shape[-1] if operator.per_channel and source.shape else 1
    wanted = DType.INT32 if operator.scale32 else DType.INT16
    if multiplier.dtype != wanted or shift.dtype != DType.INT8:
        _fail(f"multiplier and shift are {multiplier.dtype.name} and {shift.dtype.name}, not {wanted.name} and INT8")
    if (multiplier.size, shift.size) != (count, count):
        _fail(f"has {multiplier.size} multipliers and {shift.size} shifts for {count} channels")
    if operator.scale32 and source.dtype == DType.INT48:
        _fail("int48 needs multipliers of 16 bits")
    if operator.rounding == Rounding.DOUBLE and not operator.scale32:
        _fail("double rounding needs multipliers of 32 bits")
    if shift.data is not None and shift.size and not 2 <= shift.data.min() <= shift.data.max() <= 62:
        _fail(f"shifts go from {shift.data.min()} to {shift.data.max()}, not within 2 to 62")
    if multiplier.data is not None and multiplier.size and multiplier.data.min() < 0:
        _fail("a multiplier is negative")
    _zero_point(input_zero, source.dtype)
    _zero_point(output_zero, output_zero.dtype)
    return source.shape, output_zero.dtype


# -- products and windows --------------------------------------------------------------------------------------------


def _sums(operator: Any, source: Tensor) -> DType:
    """The type of a convolution's result: integers are wider than the input, floats are rounded to its type."""
    wide: DType = operator.acc_type
    return source.dtype if source.dtype in (DType.FP16, DType.FP32) else wide


def _operands(inputs: Sequence[Tensor], channels: int, sums: DType) -> None:
    """Bias and zero points of a convolution."""
    source, weight, bias, input_zero, weight_zero = inputs
    if bias.dtype != sums or len(bias.shape) != 1 or bias.size not in (1, channels):
        _fail(f"the bias is {bias.dtype.name}{list(bias.shape)}, not {sums.name} for {channels} channels")
    _zero_point(input_zero, source.dtype)
    _zero_point(weight_zero, weight.dtype)
    if source.dtype != DType.INT8 and input_zero.data is not None and input_zero.data.any():
        _fail(f"the zero point of {source.dtype.name} must be 0")


@_rule(op.Conv2d, op.Conv3d)
def _convolution(operator: op.Conv2d | op.Conv3d, inputs: Sequence[Tensor]) -> Result:
    source, weight = inputs[:2]
    axes = len(operator.stride)
    _rank(source, axes + 2)
    _rank(weight, axes + 2)
    if weight.shape[-1] != source.shape[-1]:
        _fail(f"weights for {weight.shape[-1]} channels meet {source.shape[-1]}")
    _operands(inputs, weight.shape[0], sums := _sums(operator, source))
    sizes = _spread(source, weight.shape[1:-1], operator)
    return (source.shape[0], *sizes, weight.shape[0]), sums


@_rule(op.DepthwiseConv2d)
def _depthwise(operator: op.DepthwiseConv2d, inputs: Sequence[Tensor]) -> Result:
    source, weight = inputs[:2]
    _rank(source, 4)
    _rank(weight, 4)
    if weight.shape[2] != source.shape[3]:
        _fail(f"weights for {weight.shape[2]} channels meet {source.shape[3]}")
    channels = weight.shape[2] * weight.shape[3]
    _operands(inputs, channels, sums := _sums(operator, source))
    return (source.shape[0], *_spread(source, weight.shape[:2], operator), channels), sums


def _spread(source: Tensor, kernel: Shape, operator: op.Conv2d | op.Conv3d | op.DepthwiseConv2d) -> Shape:
    """The sizes of a convolution's result along the axes of its kernel."""
    return tuple(
        _windows(size, operator.pad[2 * axis], operator.pad[2 * axis + 1], reach, operator.stride[axis])
        for axis, (size, reach) in enumerate(
            zip(
                source.shape[1:-1],
                [step * (length - 1) + 1 for step, length in zip(operator.dilation, kernel, strict=True)],
                strict=True,
            )
        )
    )


@_rule(op.TransposeConv2d)
def _transposed(operator: op.TransposeConv2d, inputs: Sequence[Tensor]) -> Result:
    source, weight = inputs[:2]
    _rank(source, 4)
    _rank(weight, 4)
    if weight.shape[3] != source.shape[3]:
        _fail(f"weights for {weight.shape[3]} channels meet {source.shape[3]}")
    _operands(inputs, weight.shape[0], sums := _sums(operator, source))
    pad = operator.out_pad
    sizes = [
        (source.shape[1 + axis] - 1) * operator.stride[axis]
        + pad[2 * axis]
        + pad[2 * axis + 1]
        + weight.shape[1 + axis]
        for axis in (0, 1)
    ]
    if min(sizes) < 1 or min(pad[:2]) <= -weight.shape[1] or min(pad[2:]) <= -weight.shape[2]:
        _fail(f"out_pad {list(pad)} crops more than the kernel adds")
    return (source.shape[0], *sizes, weight.shape[0]), sums


@_rule(op.Matmul)
def _matmul(operator: op.Matmul, inputs: Sequence[Tensor]) -> Result:
    first, second, first_zero, second_zero = inputs
    _rank(first, 3)
    _rank(second, 3)
    type_ = _one_type((first, second))
    if first.shape[0] != second.shape[0] or first.shape[2] != second.shape[1]:
        _fail(f"{list(first.shape)} is not multiplied by {list(second.shape)}")
    _zero_point(first_zero, type_)
    _zero_point(second_zero, type_)
    results = {DType.INT8: DType.INT32, DType.INT16: DType.INT48}
    return (*first.shape[:2], second.shape[2]), results.get(type_, type_)


@_rule(op.AvgPool2d, op.MaxPool2d)
def _pool(operator: op.AvgPool2d | op.MaxPool2d, inputs: Sequence[Tensor]) -> Result:
    source = inputs[0]
    _rank(source, 4)
    for zero in inputs[1:]:
        _zero_point(zero, source.dtype)
    sizes = []
    for axis in (0, 1):
        before, after = operator.pad[2 * axis : 2 * axis + 2]
        if max(before, after) >= operator.kernel[axis]:
            _fail(f"padding {before}, {after} is not less than the window of {operator.kernel[axis]}")
        sizes.append(_windows(source.shape[1 + axis], before, after, operator.kernel[axis], operator.stride[axis]))
    return (source.shape[0], *sizes, source.shape[3]), source.dtype


# -- reductions ------------------------------------------------------------------------------------------------------


@_rule(op.ReduceAll, op.ReduceAny, op.ReduceMax, op.ReduceMin, op.ReduceProduct, op.ReduceSum)
def _reduction(operator: Any, inputs: Sequence[Tensor]) -> Result:
    (source,) = inputs
    return _replaced(source.shape, _axis(operator.axis, source), 1), source.dtype


@_rule(op.Argmax)
def _argmax(operator: op.Argmax, inputs: Sequence[Tensor]) -> Result:
    (source,) = inputs
    axis = _axis(operator.axis, source)
    return source.shape[:axis] + source.shape[axis + 1 :], DType.INT32


# -- moving elements ------------------------------------------------------------------------------------------------


@_rule(op.Reshape)
def _reshape(operator: op.Reshape, inputs: Sequence[Tensor]) -> Result:
    source, shape = inputs
    sizes = _sizes(shape, shape.size)
    if math.prod(sizes) != source.size:
        _fail(f"{source.size} elements do not fill {list(sizes)}")
    return sizes, source.dtype


@_rule(op.Transpose)
def _transpose(operator: op.Transpose, inputs: Sequence[Tensor]) -> Result:
    (source,) = inputs
    if sorted(operator.perms) != list(range(len(source.shape))):
        _fail(f"{list(operator.perms)} is not an order of {len(source.shape)} axes")
    return tuple(source.shape[axis] for axis in operator.perms), source.dtype


@_rule(op.Reverse)
def _reverse(operator: op.Reverse, inputs: Sequence[Tensor]) -> Result:
    _axis(operator.axis, inputs[0])
    return inputs[0].shape, inputs[0].dtype


@_rule(op.Concat)
def _concat(operator: op.Concat, inputs: Sequence[Tensor]) -> Result:
    axis, type_ = _axis(operator.axis, inputs[0]), _one_type(inputs)
    others = {_replaced(tensor.shape, axis, 0) for tensor in inputs if len(tensor.shape) > axis}
    if len(others) != 1 or len({len(tensor.shape) for tensor in inputs}) != 1:
        _fail("sizes beside the axis differ: " + ", ".join(str(list(tensor.shape)) for tensor in inputs))
    return _replaced(inputs[0].shape, axis, sum(tensor.shape[axis] for tensor in inputs)), type_


@_rule(op.Pad)
def _pad(operator: op.Pad, inputs: Sequence[Tensor]) -> Result:
    source, padding, value = inputs
    sizes = _sizes(padding, 2 * len(source.shape))
    if min(sizes, default=0) < 0:
        _fail(f"padding {list(sizes)} is negative")
    if value.size != 1 or value.dtype != source.dtype:
        _fail(f"pads {source.dtype.name} with {value.size} of {value.dtype.name}")
    padded = (size + sum(sizes[2 * axis : 2 * axis + 2]) for axis, size in enumerate(source.shape))
    return tuple(padded), source.dtype


@_rule(op.Slice)
def _slice(operator: op.Slice, inputs: Sequence[Tensor]) -> Result:
    source = inputs[0]
    starts, sizes = (_sizes(item, len(source.shape)) for item in inputs[1:])
    for start, size, available in zip(starts, sizes, source.shape, strict=True):
        if start < 0 or size < 1 or start + size > available:
            _fail(f"{size} from {start} on are not within {available}")
    return sizes, source.dtype


@_rule(op.Tile)
def _tile(operator: op.Tile, inputs: Sequence[Tensor]) -> Result:
    source, multiples = inputs
    counts = _sizes(multiples, len(source.shape))
    if min(counts, default=1) < 1:
        _fail(f"repeats {list(counts)} times")
    return tuple(size * count for size, count in zip(source.shape, counts, strict=True)), source.dtype


@_rule(op.Gather)
def _gather(operator: op.Gather, inputs: Sequence[Tensor]) -> Result:
    values, indices = inputs
    _rank(values, 3)
    _rank(indices, 2)
    if indices.dtype != DType.INT32 or indices.shape[0] != values.shape[0]:
        _fail(f"indices are {indices.dtype.name}{list(indices.shape)} for values {list(values.shape)}")
    return (*indices.shape, values.shape[2]), values.dtype


@_rule(op.Scatter)
def _scatter(operator: op.Scatter, inputs: Sequence[Tensor]) -> Result:
    values, indices, source = inputs
    _rank(values, 3)
    if source.shape != _gather(op.Gather(), (values, indices))[0] or source.dtype != values.dtype:
        _fail(f"{source.dtype.name}{list(source.shape)} is not written into {values.dtype.name}{list(values.shape)}")
    return values.shape, values.dtype


@_rule(op.Resize)
def _resize(operator: op.Resize, inputs: Sequence[Tensor]) -> Result:
    source = inputs[0]
    _rank(source, 4)
    scale, offset, border = (_sizes(item, count) for item, count in zip(inputs[1:], (4, 2, 2), strict=True))
    if min(scale) < 1:
        _fail(f"scale {list(scale)} is not positive")
    sizes = []
    for axis in (0, 1):
        up, down = scale[2 * axis : 2 * axis + 2]
        room = (source.shape[1 + axis] - 1) * up - offset[axis] + border[axis]
        if room < 0 or room % down:
            _fail(f"scale {list(scale)}, offset {list(offset)} and border {list(border)} give no whole size")
        sizes.append(room // down + 1)
    results = {DType.INT8: DType.INT32, DType.INT16: DType.INT48} if operator.mode == ResizeMode.BILINEAR else {}
    return (source.shape[0], *sizes, source.shape[3]), results.get(source.dtype, source.dtype)
