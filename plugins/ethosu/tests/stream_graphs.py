"""TOSA graphs drawn at random, one kind of operator each, with inputs, for testing the Ethos-U55's streams."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from stream_case import INT8, INT16, INT32, INT48, NUMPY, Array, Case, softmax

from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import DType, Graph, Tensor
from delegatekit_toolkit.tosa.numerics import multipliers_and_shifts


def window(case: Case, extent: int, size: int, stride: int, dilation: int = 1, most: int = 8) -> tuple[int, int, int]:
    """Padding before and after that matches the kernel, and the number of results; 0 if there is none."""
    reach = dilation * (size - 1) + 1
    before, after = case.size(0, min(size - 1, most)), case.size(0, min(size - 1, most))
    over = (extent + before + after - reach) % stride
    taken = min(over, after)
    after -= taken
    before -= over - taken
    if before < 0 or extent + before + after < reach:
        return 0, 0, 0
    return before, after, (extent + before + after - reach) // stride + 1


def convolution(case: Case, *, depthwise: bool = False, wide: bool = False) -> Tensor | None:
    """CONV2D or DEPTHWISE_CONV2D, int8 or int16, with RESCALE."""
    _, height, width, channels = case.shape(80)
    kernel = case.one_of(1, 1, 2, 3, 3, 5), case.one_of(1, 1, 2, 3, 3, 7)
    stride = case.one_of(1, 1, 2, 3), case.one_of(1, 1, 2, 3)
    dilation = (case.one_of(1, 2), case.one_of(1, 2)) if case.chance(0.2) else (1, 1)
    top, bottom, rows = window(case, height, kernel[0], stride[0], dilation[0])
    left, right, columns = window(case, width, kernel[1], stride[1], dilation[1])
    if not rows or not columns:
        return None
    dtype, sums = (INT16, INT48) if wide else (INT8, INT32)
    zero = 0 if wide else case.zero()
    image = case.input((1, height, width, channels), dtype)
    pad = (top, bottom, left, right)
    operator: tosa.Conv2d | tosa.DepthwiseConv2d
    if depthwise:
        multiple = case.one_of(1, 1, 1, 2) if channels < 8 else 1
        depth = channels * multiple
        weights = case.weights(*kernel, channels, multiple)
        operator = tosa.DepthwiseConv2d(pad, stride, dilation, acc_type=sums)
    else:
        depth = case.size(1, 70)
        weights = case.weights(depth, *kernel, channels)
        operator = tosa.Conv2d(pad, stride, dilation, acc_type=sums)
    bias = case.graph.constant(case.rng.integers(-20000, 20000, depth), sums)
    operands = (image, weights, bias, case.point(zero, dtype), case.point(0))
    result = case.graph.add(operator, operands, (1, rows, columns, depth), sums, "conv")
    # Results of about the output's range.
    size = math.sqrt(math.prod(weights.shape) / depth) * 20 * (1 << 7)
    if wide:
        return case.rescale(result, INT16, case.scales(0.1 / size, 1.0 / size, depth))
    return case.ending(case.rescale(result, INT8, case.scales(30 / size, 300 / size, depth), 0, case.zero()))


def depthwise(case: Case) -> Tensor | None:
    return convolution(case, depthwise=True)


def convolution16(case: Case) -> Tensor | None:
    return convolution(case, wide=True)


def depthwise16(case: Case) -> Tensor | None:
    return convolution(case, depthwise=True, wide=True)


def transposed(case: Case) -> Tensor | None:
    """TRANSPOSE_CONV2D."""
    _, height, width, channels = case.shape(40, 8)
    depth, step = case.size(1, 40), case.one_of(1, 2, 2)
    stride = step, step
    kernel = case.size(stride[0], 5), case.size(stride[1], 5)
    pads = [-case.size(0, kernel[0] - 1), -case.size(0, kernel[0] - 1), 0, 0]
    pads[2:] = [-case.size(0, kernel[1] - 1), -case.size(0, kernel[1] - 1)]
    rows = (height - 1) * stride[0] + sum(pads[:2]) + kernel[0]
    columns = (width - 1) * stride[1] + sum(pads[2:]) + kernel[1]
    # Vela refuses a doubled row or column of one element.
    if min(rows, columns) < step:
        return None
    image, zero = case.input((1, height, width, channels)), case.zero()
    bias = case.graph.constant(case.rng.integers(-20000, 20000, depth), INT32)
    operands = (image, case.weights(depth, *kernel, channels), bias, case.point(zero), case.point(0))
    top, bottom, left, right = pads
    operator = tosa.TransposeConv2d((top, bottom, left, right), stride)
    result = case.graph.add(operator, operands, (1, rows, columns, depth), INT32, "transposed")
    size = math.sqrt(math.prod(kernel) * channels) * 20 * (1 << 7)
    return case.ending(case.rescale(result, INT8, case.scales(30 / size, 300 / size, depth), 0, case.zero()))


def linear(case: Case) -> Tensor:
    """A fully connected layer, as a 1 by 1 convolution between reshapes."""
    rows, inputs, outputs = case.size(1, 8), case.size(1, 200), case.size(1, 150)
    graph, zero = case.graph, case.zero()
    flat = case.input((rows, inputs))
    # As height or width: with rows as a batch, Vela 5.1 loses them if an activation follows.
    before = (1, rows, 1) if case.chance() else (1, 1, rows)
    image = graph.add(tosa.Reshape(), [flat, case.sizes(*before, inputs)], (*before, inputs), INT8, "view")
    bias = graph.constant(case.rng.integers(-20000, 20000, outputs), INT32)
    operands = (image, case.weights(outputs, 1, 1, inputs), bias, case.point(zero), case.point(0))
    result = graph.add(tosa.Conv2d(), operands, (*before, outputs), INT32, "linear")
    size = math.sqrt(inputs) * 20 * (1 << 7)
    result = case.ending(case.rescale(result, INT8, case.scales(30 / size, 300 / size, outputs), 0, case.zero()))
    return graph.add(tosa.Reshape(), [result, case.sizes(rows, outputs)], (rows, outputs), INT8, "view")


def matmul(case: Case) -> Tensor:
    batch, rows, inner, columns = case.size(1, 3), case.size(1, 10), case.size(1, 40), case.size(1, 12)
    left, right = case.input((batch, rows, inner)), case.input((batch, inner, columns))
    operands = (left, right, case.point(case.zero()), case.point(case.zero()))
    result = case.graph.add(tosa.Matmul(), operands, (batch, rows, columns), INT32, "matmul")
    size = math.sqrt(inner) * (1 << 14)
    return case.rescale(result, INT8, case.scales(30 / size, 300 / size, 1)[0], 0, case.zero())


def average(case: Case) -> Tensor | None:
    return _pooled(case, tosa.AvgPool2d)


def maximum_pool(case: Case) -> Tensor | None:
    return _pooled(case, tosa.MaxPool2d)


def _pooled(case: Case, kind: type[tosa.AvgPool2d] | type[tosa.MaxPool2d]) -> Tensor | None:
    dtype = INT16 if case.chance(0.2) else INT8
    _, height, width, channels = case.shape(40, 14)
    kernel = case.size(1, min(8, height)), case.size(1, min(8, width))
    stride = case.size(1, 3), case.size(1, 3)
    top, bottom, rows = window(case, height, kernel[0], stride[0])
    left, right, columns = window(case, width, kernel[1], stride[1])
    if not rows or not columns:
        return None
    image = case.input((1, height, width, channels), dtype)
    pad, shape = (top, bottom, left, right), (1, rows, columns, channels)
    if kind is tosa.MaxPool2d:
        return case.graph.add(tosa.MaxPool2d(kernel, stride, pad), [image], shape, dtype, "pool")
    points = [case.point(0 if dtype == INT16 else case.zero(), dtype) for _ in range(2)]
    result = case.graph.add(tosa.AvgPool2d(kernel, stride, pad), [image, *points], shape, dtype, "pool")
    if dtype == INT8 and case.chance(0.3):
        return case.ending(case.rescale(result, INT8, case.scales(0.2, 4, 1)[0], case.zero(), case.zero()))
    return result


def global_average(case: Case) -> Tensor:
    _, height, width, channels = case.shape(100, 20)
    points = [case.point(case.zero()) for _ in range(2)]
    image = case.input((1, height, width, channels))
    return case.graph.add(tosa.AvgPool2d((height, width)), [image, *points], (1, 1, 1, channels), INT8, "mean")


def _two(case: Case, dtype: DType = INT8, bound: int | None = None) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Two operands of which one may be broadcast, or the same one twice, or a constant."""
    shape = case.shape()[1 if case.chance(0.2) else 0 :]
    other = tuple(1 if case.chance(0.3) else size for size in shape) if case.chance(0.5) else shape
    first = case.input(shape, dtype, bound)
    kind = case.one_of(0, 0, 0, 0, 1, 2)
    if kind == 1:
        limit = bound or np.iinfo(NUMPY[dtype]).max
        second = case.graph.constant(case.rng.integers(-limit, limit, other), dtype)
    else:
        second = first if kind == 2 else case.input(other, dtype, bound)
    return (first, second, shape) if case.chance(0.6) else (second, first, shape)


def added(case: Case, dtype: DType = INT8) -> Tensor:
    """A quantized ADD or SUB as it is lowered: both operands to a common scale with some headroom, then back."""
    first, second, shape = _two(case, dtype)
    scales = case.scales(0.01, 0.2, 1)[0], case.scales(0.01, 0.2, 1)[0]
    if case.chance(0.3):
        scales = scales[0], scales[0]
    headroom = 1 << (case.one_of(12, 15) if dtype == INT16 else 20)
    largest = 2 * max(scales)
    zeros = [0 if dtype == INT16 else case.zero() for _ in range(3)]
    left = case.int32(first, scales[0] / largest * headroom, zeros[0])
    right = case.int32(second, scales[1] / largest * headroom, zeros[1])
    operator = tosa.Add() if case.chance(0.6) else tosa.Sub()
    result = case.graph.add(operator, [left, right], shape, INT32, "sum")
    result = case.rescale(result, dtype, largest / headroom / (max(scales) * case.rng.uniform(0.7, 2.5)), 0, zeros[2])
    return case.ending(result) if dtype == INT8 else result


def added16(case: Case) -> Tensor:
    return added(case, INT16)


def added_plainly(case: Case) -> Tensor:
    """ADD or SUB with rescales of 1, as for equal scales."""
    first, second, shape = _two(case)
    operator = tosa.Add() if case.chance(0.6) else tosa.Sub()
    result = case.graph.add(operator, [case.int32(first), case.int32(second)], shape, INT32, "sum")
    return case.ending(case.rescale(result, INT8, case.scales(0.1, 2, 1)[0], 0, case.zero()))


def added_oddly(case: Case) -> Tensor:
    """ADD or SUB with rescales of unknown origin."""
    first, second, shape = _two(case)
    operator = tosa.Add() if case.chance(0.6) else tosa.Sub()
    scales = [case.scales(0.01, 1e5, 1)[0] for _ in range(2)]
    result = case.graph.add(
        operator, [case.int32(first, scales[0]), case.int32(second, scales[1])], shape, INT32, "sum"
    )
    return case.ending(case.rescale(result, INT8, case.scales(0.1, 2, 1)[0] / max(scales), 0, case.zero()))


def multiplied(case: Case) -> Tensor:
    dtype = INT16 if case.chance(0.2) else INT8
    first, second, shape = _two(case, dtype)
    zeros = [0 if dtype == INT16 else case.zero() for _ in range(3)]
    operands = (case.int32(first, 1.0, zeros[0]), case.int32(second, 1.0, zeros[1]), case.point(0))
    result = case.graph.add(tosa.Mul(), operands, shape, INT32, "product")
    size = 1 << (15 if dtype == INT16 else 7)
    result = case.rescale(result, dtype, case.scales(0.3 / size, 4 / size, 1)[0], 0, zeros[2])
    return case.ending(result) if dtype == INT8 else result


def integers(case: Case) -> Tensor:
    """ADD, SUB, MUL, MAXIMUM, MINIMUM and shifts of int32."""
    kind = case.size(0, 7)
    bound = {0: 1 << 29, 1: 1 << 29, 2: 40000}.get(kind, (1 << 31) - 1)
    if kind > 4:
        shape = case.shape()
        # Rounding needs a bit that is shifted out.
        places = case.graph.constant(case.rng.integers(kind == 5, 32, shape), INT32)
        operands = [case.input(shape, INT32, bound), places]
        left = tosa.LogicalLeftShift()
        operator = left if kind == 7 else tosa.ArithmeticRightShift(round=kind == 5)
        return case.graph.add(operator, operands, shape, INT32, "shifted")
    first, second, shape = _two(case, INT32, bound)
    if kind == 2:
        return case.graph.add(tosa.Mul(), [first, second, case.point(0)], shape, INT32, "product")
    operators = {0: tosa.Add(), 1: tosa.Sub(), 3: tosa.Maximum(), 4: tosa.Minimum()}
    return case.graph.add(operators[kind], [first, second], shape, INT32, "result")


def extremes(case: Case) -> Tensor:
    """MAXIMUM or MINIMUM of rescaled operands."""
    first, second, shape = _two(case)
    operator = tosa.Maximum() if case.chance() else tosa.Minimum()
    scales = [1.0 if case.chance() else case.scales(0.1, 1, 1)[0] for _ in range(2)]
    left, right = case.int32(first, scales[0]), case.int32(second, scales[1])
    result = case.graph.add(operator, [left, right], shape, INT32, "extreme")
    return case.ending(case.rescale(result, INT8, case.scales(0.3, 3, 1)[0], 0, case.zero()))


def unary(case: Case) -> Tensor:
    """ABS, NEGATE, CLZ of int32 or int8."""
    shape = case.shape()
    kind = case.size(0, 4)
    if kind < 2:
        operator = tosa.Abs() if kind == 0 else tosa.Clz()
        return case.graph.add(operator, [case.input(shape, INT32, (1 << 31) - 1)], shape, INT32, "result")
    if kind == 2:
        image = case.input(shape, INT32, (1 << 31) - 1)
        return case.graph.add(tosa.Negate(), [image, case.point(0, INT32), case.point(0, INT32)], shape, INT32, "minus")
    if kind == 3:
        operands = [case.input(shape), case.point(case.zero()), case.point(case.zero())]
        return case.graph.add(tosa.Negate(), operands, shape, INT8, "minus")
    result = case.graph.add(tosa.Abs(), [case.int32(case.input(shape))], shape, INT32, "magnitude")
    return case.rescale(result, INT8, case.scales(0.2, 2, 1)[0], 0, case.zero())


def rescaled(case: Case) -> Tensor:
    """RESCALE between all types, for all channels or for each."""
    shape = case.shape()
    source, target = (DType(case.one_of(INT8, INT16, INT32)) for _ in range(2))
    image = case.input(shape, source, 1 << 20 if source == INT32 else None)
    ranges = {INT8: 7, INT16: 15, INT32: 20}
    size = 2.0 ** (ranges[target] - ranges[source])
    zeros = [case.zero() if dtype == INT8 else 0 for dtype in (source, target)]
    rounding = tosa.Rounding.DOUBLE if case.chance(0.3) else tosa.Rounding.SINGLE
    return case.rescale(image, target, case.scales(size / 5, size * 2, shape[3]), *zeros, rounding)


def unsigned(case: Case) -> Tensor:
    """RESCALE from or to unsigned numbers."""
    graph, shape, incoming = case.graph, case.shape(), case.chance()
    source, target = (INT16 if case.chance(0.3) else INT8 for _ in range(2))
    size = 2.0 ** ((8 if target == INT16 else 0) - (8 if source == INT16 else 0))
    multipliers, shifts = multipliers_and_shifts(case.scales(0.3 * size, 2 * size, shape[3]))

    def point(dtype: DType, without_sign: bool) -> Tensor:
        """The middle for 16 bits, if nothing else is allowed."""
        if dtype == INT8:
            return case.point(case.zero())
        return case.point(-(1 << 15) if without_sign else 0, INT16)

    operands = [
        case.input(shape, source),
        graph.constant(multipliers, INT32),
        graph.constant(shifts, INT8),
        point(source, incoming),
        point(target, not incoming),
    ]
    many = len(multipliers) > 1
    operator = tosa.Rescale(per_channel=many, input_unsigned=incoming, output_unsigned=not incoming)
    return graph.add(operator, operands, shape, target, "rescale")


def looked_up(case: Case) -> Tensor:
    """TABLE by itself, or after another."""
    return case.ending(case.table(case.input(case.shape())))


def clamped(case: Case) -> Tensor:
    """CLAMP by itself."""
    shape, low = case.shape(), case.size(-128, 20)
    return case.graph.add(tosa.Clamp(low, case.size(low, 127)), [case.input(shape)], shape, INT8, "clamp")


def reduced(case: Case) -> Tensor:
    """REDUCE_SUM, REDUCE_MAX, REDUCE_MIN over any axis."""
    shape = case.shape()
    axis = case.size(1, 3)
    result = tuple(1 if place == axis else size for place, size in enumerate(shape))
    kind = case.size(0, 2)
    if kind == 0:
        image = case.input(shape, INT32, 1 << 24)
        return case.graph.add(tosa.ReduceSum(axis), [image], result, INT32, "sum")
    operator = tosa.ReduceMax(axis) if kind == 1 else tosa.ReduceMin(axis)
    return case.graph.add(operator, [case.input(shape)], result, INT8, "extreme")


def argmax(case: Case) -> Tensor:
    shape = case.shape(100)
    return case.graph.add(tosa.Argmax(3), [case.input(shape)], shape[:3], INT32, "argmax")


def moved(case: Case) -> Tensor:
    """RESHAPE, TRANSPOSE, PAD, CONCAT, SLICE, TILE, REVERSE."""
    graph, shape = case.graph, case.shape(24, 10)
    kind = case.size(0, 6)
    dtype = INT8 if case.chance(0.7) else INT16
    image = case.input(shape, dtype)
    if kind == 0:
        result = (1, shape[1] * shape[2], 1, shape[3])
        view = graph.add(tosa.Reshape(), [image, case.sizes(*result)], result, dtype, "view")
        return graph.add(tosa.Transpose((0, 3, 2, 1)), [view], (1, shape[3], 1, result[1]), dtype, "transposed")
    if kind == 1:
        perms = tuple(int(axis) for axis in case.rng.permutation(4))
        return graph.add(tosa.Transpose(perms), [image], [shape[axis] for axis in perms], dtype, "transposed")
    if kind == 2:
        pads = [0, 0, *(case.size(0, 3) for _ in range(6))]
        result = tuple(shape[axis] + pads[2 * axis] + pads[2 * axis + 1] for axis in range(4))
        value = case.point(case.zero(), dtype)
        return graph.add(tosa.Pad(), [image, case.sizes(*pads), value], result, dtype, "padded")
    if kind == 3:
        axis = case.size(1, 3)
        other = tuple(case.size(1, 10) if place == axis else size for place, size in enumerate(shape))
        result = tuple(size + other[place] if place == axis else size for place, size in enumerate(shape))
        return graph.add(tosa.Concat(axis), [image, case.input(other, dtype)], result, dtype, "joined")
    if kind == 4:
        start = [case.size(0, size - 1) for size in shape]
        size = [case.size(1, whole - first) for whole, first in zip(shape, start, strict=True)]
        return graph.add(tosa.Slice(), [image, case.sizes(*start), case.sizes(*size)], size, dtype, "part")
    if kind == 5:
        times = [1, case.size(1, 3), case.size(1, 3), case.size(1, 3)]
        result = tuple(size * many for size, many in zip(shape, times, strict=True))
        return graph.add(tosa.Tile(), [image, case.sizes(*times)], result, dtype, "tiled")
    return graph.add(tosa.Reverse(case.size(1, 2)), [image], shape, dtype, "reversed")


def resized(case: Case) -> Tensor:
    """RESIZE to the nearest element by 2, 4 or 8, with pixels as squares or as points."""
    _, height, width, channels = case.shape(24, 7)
    factor = case.one_of(2, 4, 8)
    image = case.input((1, height, width, channels))
    if case.chance():
        sizes = (2 * factor, 2, 2 * factor, 2), (1 - factor, 1 - factor), (factor - 1, factor - 1)
        shape = (1, height * factor, width * factor, channels)
    else:
        sizes = (factor, 1, factor, 1), (0, 0), (0, 0)
        shape = (1, (height - 1) * factor + 1, (width - 1) * factor + 1, channels)
    operands = [image, *(case.sizes(*values) for values in sizes)]
    return case.ending(case.graph.add(tosa.Resize(tosa.ResizeMode.NEAREST), operands, shape, INT8, "resized"))


def normalized(case: Case) -> Tensor:
    """Softmax, as it is lowered."""
    return softmax(case, case.input((case.size(1, 6), case.size(2, 40))))


#: Kinds of graphs by name: each draws one, or returns None if the drawn sizes do not match each other.
KINDS: dict[str, Callable[[Case], Tensor | None]] = {
    function.__name__: function
    for function in (
        convolution,
        depthwise,
        convolution16,
        depthwise16,
        transposed,
        linear,
        matmul,
        average,
        maximum_pool,
        global_average,
        added,
        added16,
        added_plainly,
        added_oddly,
        multiplied,
        integers,
        extremes,
        unary,
        rescaled,
        unsigned,
        looked_up,
        clamped,
        reduced,
        argmax,
        moved,
        resized,
        normalized,
    )
}


def draw(kind: str, seed: int) -> tuple[bytes, list[Array]]:
    """A TOSA file of that kind and inputs for it. The same seed gives the same ones."""
    for attempt in range(1000):
        case = Case(np.random.default_rng((seed, attempt)), Graph(kind), [])
        result = KINDS[kind](case)
        if result is not None:
            case.graph.output(result)
            case.graph.verify()
            return tosa.write(case.graph), case.inputs
    raise AssertionError(f"no {kind} fits")
