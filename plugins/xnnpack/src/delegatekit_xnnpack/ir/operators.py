"""The operators of XNNPACK's graph, each a frozen dataclass that computes the shape of its result.

Equal operators on equal inputs compute equal values: common subexpressions are found this way. Feature maps are NHWC.
Attributes have the meaning of the fields of the serialized tables (see `blob.schema`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from delegatekit_api import LoweringError
from delegatekit_toolkit.sizes import Dynamic, Size, at_most, minimum

from .types import HALF_TYPES, DataType, Format, Shape


class _Kind(str, Enum):
    """Operators of one form; the value is the name of the node in the blob."""

    #: Whether XNNPACK computes it on int8, too.
    on_integers: bool

    def __new__(cls, name: str, on_integers: bool = False) -> _Kind:
        kind = str.__new__(cls, name)
        kind._value_, kind.on_integers = name, on_integers
        return kind


class UnaryKind(_Kind):
    """Operators with one input and no attributes."""

    ABS = "Abs", True
    CEILING = "Ceiling"
    COPY = "Copy"
    COS = "Cos"
    EXP = "Exp", True
    FLOOR = "Floor"
    GELU = "Gelu", True
    HARDSWISH = "Hardswish", True
    LOG = "Log", True
    NEGATE = "Negate", True
    RECIPROCAL_SQUARE_ROOT = "ReciprocalSquareRoot"
    SIGMOID = "Sigmoid", True
    SIN = "Sin"
    SOFTMAX = "Softmax"
    SQUARE = "Square", True
    SQUARE_ROOT = "SquareRoot", True
    TANH = "Tanh", True


class BinaryKind(_Kind):
    """Elementwise operators with two broadcasting inputs."""

    ADD = "Add", True
    DIVIDE = "Div", True
    MAXIMUM = "Maximum", True
    MINIMUM = "Minimum", True
    MULTIPLY = "Multiply", True
    PRELU = "PReLU"
    SUBTRACT = "Subtract", True


class ConvolutionKind(str, Enum):
    """The three convolutions, by the name of the node in the blob."""

    REGULAR = "Conv2d"
    DEPTHWISE = "DepthwiseConv2d"
    TRANSPOSED = "ConvTranspose2d"


class PoolKind(str, Enum):
    """The two poolings, by the name of the node in the blob."""

    AVERAGE = "AvgPooling2d"
    MAXIMUM = "MaxPooling2d"


@dataclass(frozen=True)
class Operator:
    """Base of all operators."""

    #: True if the node may clamp its result (the runtime ignores bounds on all others).
    fuses_clamp: ClassVar[bool] = False
    #: True if the bounds are the operator itself.
    needs_clamp: ClassVar[bool] = False
    #: True if each element of the result depends on the same element of each input only.
    is_elementwise: ClassVar[bool] = False
    #: True if the second input is a weight, whose type may differ from that of the first.
    weighted: ClassVar[bool] = False

    def output_shape(self, *inputs: Shape) -> Shape:
        """The shape of the result. Raises LoweringError for inputs that do not match each other."""
        return self._shape(*inputs)

    def output_format(self, *inputs: Format) -> Format:
        """The result's format: that of the first input if its type holds numbers or elements are only moved."""
        return inputs[0] if self.moves_elements or inputs[0].datatype in HALF_TYPES else Format()

    @property
    def moves_elements(self) -> bool:
        """True if every element of the result is one of the inputs, or a fill."""
        return False

    def _shape(self, *inputs: Shape) -> Shape:
        raise NotImplementedError


@dataclass(frozen=True)
class Convert(Operator):
    """The numbers in another format: quantized, or float32 again."""

    format: Format

    @property
    def is_elementwise(self) -> bool:  # type: ignore[override]
        """True unless the parameters are those of a row."""
        return self.format.datatype is not DataType.QDINT8

    def output_format(self, *inputs: Format) -> Format:
        """The format."""
        return self.format

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        return x


@dataclass(frozen=True)
class Unary(Operator):
    """An elementwise function, or softmax over the last axis."""

    kind: UnaryKind

    @property
    def moves_elements(self) -> bool:
        """True for a copy."""
        return self.kind is UnaryKind.COPY

    @property
    def is_elementwise(self) -> bool:  # type: ignore[override]
        """True for all but softmax."""
        return self.kind is not UnaryKind.SOFTMAX

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        return x


@dataclass(frozen=True)
class Clamp(Operator):
    """min(max(x, low), high); the bounds are the node's clamp."""

    needs_clamp = True
    is_elementwise = True

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        return x


@dataclass(frozen=True)
class Elu(Operator):
    """x for x > 0, else alpha * (exp(x) - 1)."""

    is_elementwise = True

    alpha: float

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        return x


@dataclass(frozen=True)
class LeakyRelu(Operator):
    """x for x > 0, else negative_slope * x."""

    is_elementwise = True

    negative_slope: float

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        return x


@dataclass(frozen=True)
class Binary(Operator):
    """An elementwise function of two values, broadcast as in NumPy."""

    is_elementwise = True

    kind: BinaryKind

    @property
    def fuses_clamp(self) -> bool:  # type: ignore[override]
        """True for the four arithmetic operators."""
        return self.kind in (BinaryKind.ADD, BinaryKind.SUBTRACT, BinaryKind.MULTIPLY, BinaryKind.DIVIDE)

    def _shape(self, *inputs: Shape) -> Shape:
        left, right = inputs
        return broadcast_shape(left, right)


@dataclass(frozen=True)
class FullyConnected(Operator):
    """x (..., I) times filter (O, I), or (I, O) if `transposed`, plus an optional bias (O,)."""

    fuses_clamp = True
    weighted = True

    transposed: bool = False

    def _shape(self, *inputs: Shape) -> Shape:
        x, weight, *bias = inputs
        outputs, features = reversed(weight) if self.transposed else weight
        _require(len(x) >= 1 and x[-1] == features and bias in ([], [(outputs,)]), self, inputs)
        return (*x[:-1], outputs)


@dataclass(frozen=True)
class BatchMatrixMultiply(Operator):
    """a (..., M, K) times b (..., K, N), or (..., N, K) if `transposed`; batch axes broadcast."""

    transposed: bool

    def _shape(self, *inputs: Shape) -> Shape:
        a, b = inputs
        inner, columns = reversed(b[-2:]) if self.transposed else b[-2:]
        _require(a[-1] == inner, self, inputs)
        return (*broadcast_shape(a[:-2], b[:-2]), a[-2], columns)


@dataclass(frozen=True)
class Padding:
    """Rows and columns around a feature map."""

    top: int = 0
    right: int = 0
    bottom: int = 0
    left: int = 0

    def __add__(self, other: Padding) -> Padding:
        return Padding(
            self.top + other.top, self.right + other.right, self.bottom + other.bottom, self.left + other.left
        )


@dataclass(frozen=True)
class Convolution(Operator):
    """x (N, H, W, I), filter and an optional bias (O,) -> (N, H', W', O).

    The filter is (O, kh, kw, I/groups); for DEPTHWISE (1, kh, kw, O).
    """

    fuses_clamp = True
    weighted = True

    kind: ConvolutionKind
    padding: Padding
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    group_inputs: int
    group_outputs: int
    #: Extra rows and columns of a transposed convolution's result (PyTorch's output_padding); less than the stride.
    adjustment: tuple[int, int] = (0, 0)

    def _shape(self, *inputs: Shape) -> Shape:
        x, weight, *bias = inputs
        outputs = self.groups * self.group_outputs
        depthwise = self.kind is ConvolutionKind.DEPTHWISE
        filter_shape = (1, *self.kernel, outputs) if depthwise else (outputs, *self.kernel, self.group_inputs)
        fits = len(x) == 4 and x[3] == self.groups * self.group_inputs and weight == filter_shape
        _require(fits and bias in ([], [(outputs,)]), self, inputs)
        spans = (self.padding.top + self.padding.bottom, self.padding.left + self.padding.right)
        size = self._transposed_size if self.kind is ConvolutionKind.TRANSPOSED else self._size
        height, width = (size(axis, x[1 + axis], spans[axis]) for axis in (0, 1))
        return (x[0], height, width, outputs)

    def _size(self, axis: int, size: Size, padding: int) -> Size:
        return window_count(size + padding, self.kernel[axis], self.stride[axis], self.dilation[axis])

    def _transposed_size(self, axis: int, size: Size, padding: int) -> Size:
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        return (size - 1) * self.stride[axis] + reach + self.adjustment[axis] - padding


@dataclass(frozen=True)
class Pool(Operator):
    """Maximum or average over windows of x (N, H, W, C). Padding never counts."""

    fuses_clamp = True

    kind: PoolKind
    padding: Padding
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int] = (1, 1)

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        _require(len(x) == 4, self, inputs)
        spans = (self.padding.top + self.padding.bottom, self.padding.left + self.padding.right)
        height, width = (
            window_count(x[1 + axis] + spans[axis], self.kernel[axis], self.stride[axis], self.dilation[axis])
            for axis in (0, 1)
        )
        return (x[0], height, width, x[3])


@dataclass(frozen=True)
class GlobalAveragePool(Operator):
    """Mean of x (..., H, W, C) over H and W -> (..., 1, 1, C), or (..., C) without `keep_dims`."""

    fuses_clamp = True

    keep_dims: bool = True

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        _require(len(x) >= 3, self, inputs)
        return (*x[:-3], *((1, 1) if self.keep_dims else ()), x[-1])


@dataclass(frozen=True)
class ResizeBilinear(Operator):
    """x (N, H, W, C) -> (N, height, width, C), sampling pixel centers or, with align_corners, corner to corner."""

    height: int
    width: int
    align_corners: bool

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        _require(len(x) == 4, self, inputs)
        return (x[0], self.height, self.width, x[3])


@dataclass(frozen=True)
class Transpose(Operator):
    """Axis i of the result is axis permutation[i] of x."""

    permutation: tuple[int, ...]

    moves_elements = True

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        _require(sorted(self.permutation) == list(range(len(x))), self, inputs)
        return tuple(x[axis] for axis in self.permutation)


@dataclass(frozen=True)
class Reshape(Operator):
    """The same elements under another shape. One size may be 0: it is inferred from the others."""

    shape: tuple[int, ...]

    moves_elements = True

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        known = math.prod(size for size in self.shape if size)
        rest = math.prod(x) // known if known else 0
        result = tuple(size or rest for size in self.shape)
        _require(self.shape.count(0) <= 1 and math.prod(x) == math.prod(result), self, inputs)
        return result


@dataclass(frozen=True)
class Slice(Operator):
    """The block of `sizes` that begins at `offsets`; along an axis that changes from call to call, up to its end."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    moves_elements = True

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        result = []
        for offset, size, extent in zip(self.offsets, self.sizes, x, strict=True):
            end = minimum(offset + size, extent) if isinstance(extent, Dynamic) else offset + size
            _require(at_most(end, extent), self, inputs)
            result.append(end - offset)
        return tuple(result)


@dataclass(frozen=True)
class ConstantPad(Operator):
    """`before` and `after` elements of `fill` around each axis."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    fill: float

    moves_elements = True

    def _shape(self, *inputs: Shape) -> Shape:
        (x,) = inputs
        return tuple(sum(sizes) for sizes in zip(self.before, x, self.after, strict=True))


#: The maximum number of values that XNNPACK joins in one node.
CONCATENATE_LIMIT = 5


@dataclass(frozen=True)
class Concatenate(Operator):
    """Two to five values joined along an axis."""

    axis: int

    moves_elements = True

    def output_format(self, *inputs: Format) -> Format:
        """The inputs' format, or numbers if they differ."""
        return inputs[0] if len(set(inputs)) == 1 else Format()

    def _shape(self, *inputs: Shape) -> Shape:
        first = inputs[0]
        others = {(*shape[: self.axis], *shape[self.axis + 1 :]) for shape in inputs}
        _require(len(others) == 1 and self.axis < len(first), self, inputs)
        joined = sum(shape[self.axis] for shape in inputs)
        return (*first[: self.axis], joined, *first[self.axis + 1 :])


def broadcast_shape(left: Shape, right: Shape) -> Shape:
    """The common shape of two operands. Raises LoweringError if they do not broadcast."""
    rank = max(len(left), len(right))
    pairs = zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right, strict=True)
    result = []
    for a, b in pairs:
        if a != b and 1 not in (a, b):
            raise LoweringError(f"shapes {left} and {right} do not broadcast", where="XNNPACK graph")
        result.append(b if a == 1 else a)
    return tuple(result)


def window_count(size: Size, kernel: int, stride: int, dilation: int) -> Size:
    """The number of positions of a dilated window in `size`."""
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def _require(condition: bool, operator: Operator, inputs: tuple[Shape, ...]) -> None:
    if not condition:
        raise LoweringError(f"does not take inputs of shapes {', '.join(map(str, inputs))}", where=str(operator))
