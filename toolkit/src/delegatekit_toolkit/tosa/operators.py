"""The operators of TOSA 1.0: one frozen dataclass each, whose fields are the operator's attributes.

Names of operands and attributes are the specification's. The fields are in file order. Control flow, variables, Fourier
transforms and custom operators are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from .types import DType, NanMode, ResizeMode, Rounding

#: Code in a file -> operator, filled by the classes below.
OPERATORS: Final[dict[int, type[Operator]]] = {}


@dataclass(frozen=True)
class Operator:
    """Base of all operators."""

    #: TOSA's name: "CONV2D".
    name: ClassVar[str] = ""
    #: The number of the operator, and of its attributes' table, in a file.
    code: ClassVar[int] = 0
    #: Names of the operands, in order. CONCAT has any number of the first.
    operands: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, name: str = "", code: int = 0, operands: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if code:
            cls.name, cls.code, cls.operands = name, code, tuple(operands.split())
            OPERATORS[code] = cls


_CONVOLUTION = "input weight bias input_zp weight_zp"


@dataclass(frozen=True)
class Argmax(Operator, name="ARGMAX", code=1, operands="input"):
    """Index of the largest value along `axis`, which is removed; int32."""

    axis: int
    nan_mode: NanMode = NanMode.PROPAGATE


@dataclass(frozen=True)
class AvgPool2d(Operator, name="AVG_POOL2D", code=2, operands="input input_zp output_zp"):
    """Average over windows, NHWC; padding is not counted. `pad` is top, bottom, left, right."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    acc_type: DType = DType.INT32


@dataclass(frozen=True)
class Conv2d(Operator, name="CONV2D", code=3, operands=_CONVOLUTION):
    """Convolution: input NHWC, weight (OC, KH, KW, IC), bias (OC) or (1); results are sums in `acc_type`.

    `pad` is top, bottom, left, right; the windows must end exactly where the padded input does.
    """

    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    local_bound: bool = field(default=False, kw_only=True)
    acc_type: DType = DType.INT32


@dataclass(frozen=True)
class Conv3d(Operator, name="CONV3D", code=4, operands=_CONVOLUTION):
    """Convolution over volumes: input NDHWC, weight (OC, KD, KH, KW, IC)."""

    pad: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)
    stride: tuple[int, int, int] = (1, 1, 1)
    dilation: tuple[int, int, int] = (1, 1, 1)
    local_bound: bool = field(default=False, kw_only=True)
    acc_type: DType = DType.INT32


@dataclass(frozen=True)
class DepthwiseConv2d(Operator, name="DEPTHWISE_CONV2D", code=5, operands=_CONVOLUTION):
    """Convolution of each channel separately: weight (KH, KW, C, M), C * M channels in the result."""

    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    local_bound: bool = field(default=False, kw_only=True)
    acc_type: DType = DType.INT32


@dataclass(frozen=True)
class Matmul(Operator, name="MATMUL", code=7, operands="a b a_zp b_zp"):
    """Products of matrices: a (N, H, C), b (N, C, W); sums in int32 for int8."""


@dataclass(frozen=True)
class MaxPool2d(Operator, name="MAX_POOL2D", code=8, operands="input"):
    """Largest value of each window, NHWC. `pad` is top, bottom, left, right."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    nan_mode: NanMode = NanMode.PROPAGATE


@dataclass(frozen=True)
class TransposeConv2d(Operator, name="TRANSPOSE_CONV2D", code=10, operands=_CONVOLUTION):
    """Transposed convolution: weight (OC, KH, KW, IC). `out_pad` is added to the result; negative values crop it."""

    out_pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    stride: tuple[int, int] = (1, 1)
    local_bound: bool = field(default=False, kw_only=True)
    acc_type: DType = DType.INT32


@dataclass(frozen=True)
class Clamp(Operator, name="CLAMP", code=11, operands="input"):
    """Values clamped to `minimum` and `maximum`."""

    minimum: int | float
    maximum: int | float
    nan_mode: NanMode = NanMode.PROPAGATE


@dataclass(frozen=True)
class Erf(Operator, name="ERF", code=12, operands="input"):
    """Error function, floats only."""


@dataclass(frozen=True)
class Sigmoid(Operator, name="SIGMOID", code=13, operands="input"):
    """Logistic function, floats only."""


@dataclass(frozen=True)
class Tanh(Operator, name="TANH", code=14, operands="input"):
    """Hyperbolic tangent, floats only."""


@dataclass(frozen=True)
class Add(Operator, name="ADD", code=15, operands="input1 input2"):
    """Sum."""


@dataclass(frozen=True)
class ArithmeticRightShift(Operator, name="ARITHMETIC_RIGHT_SHIFT", code=16, operands="input1 input2"):
    """Arithmetic right shift; `round` adds the last bit that is shifted out."""

    round: bool = False


@dataclass(frozen=True)
class BitwiseAnd(Operator, name="BITWISE_AND", code=17, operands="input1 input2"):
    """Bitwise and."""


@dataclass(frozen=True)
class BitwiseOr(Operator, name="BITWISE_OR", code=18, operands="input1 input2"):
    """Bitwise or."""


@dataclass(frozen=True)
class BitwiseXor(Operator, name="BITWISE_XOR", code=19, operands="input1 input2"):
    """Bitwise exclusive or."""


@dataclass(frozen=True)
class Intdiv(Operator, name="INTDIV", code=20, operands="input1 input2"):
    """Quotient of int32, truncated towards zero."""


@dataclass(frozen=True)
class LogicalAnd(Operator, name="LOGICAL_AND", code=21, operands="input1 input2"):
    """And of booleans."""


@dataclass(frozen=True)
class LogicalLeftShift(Operator, name="LOGICAL_LEFT_SHIFT", code=22, operands="input1 input2"):
    """Logical left shift."""


@dataclass(frozen=True)
class LogicalRightShift(Operator, name="LOGICAL_RIGHT_SHIFT", code=23, operands="input1 input2"):
    """Logical right shift."""


@dataclass(frozen=True)
class LogicalOr(Operator, name="LOGICAL_OR", code=24, operands="input1 input2"):
    """Or of booleans."""


@dataclass(frozen=True)
class LogicalXor(Operator, name="LOGICAL_XOR", code=25, operands="input1 input2"):
    """Exclusive or of booleans."""


@dataclass(frozen=True)
class Maximum(Operator, name="MAXIMUM", code=26, operands="input1 input2"):
    """The larger of two values."""

    nan_mode: NanMode = NanMode.PROPAGATE


@dataclass(frozen=True)
class Minimum(Operator, name="MINIMUM", code=27, operands="input1 input2"):
    """The smaller of two values."""

    nan_mode: NanMode = NanMode.PROPAGATE


@dataclass(frozen=True)
class Mul(Operator, name="MUL", code=28, operands="input1 input2 shift"):
    """Product; `shift` (int8, one element) shifts int32 products to the right."""


@dataclass(frozen=True)
class Pow(Operator, name="POW", code=29, operands="input1 input2"):
    """Power, floats only."""


@dataclass(frozen=True)
class Sub(Operator, name="SUB", code=30, operands="input1 input2"):
    """Difference."""


@dataclass(frozen=True)
class Table(Operator, name="TABLE", code=31, operands="input table"):
    """Look-up: int8 with 256 entries of int8, int16 with 513 of int16 (the result is int32)."""


@dataclass(frozen=True)
class Abs(Operator, name="ABS", code=32, operands="input1"):
    """Absolute value."""


@dataclass(frozen=True)
class BitwiseNot(Operator, name="BITWISE_NOT", code=33, operands="input1"):
    """Bitwise not."""


@dataclass(frozen=True)
class Ceil(Operator, name="CEIL", code=34, operands="input1"):
    """Rounded up, floats only."""


@dataclass(frozen=True)
class Clz(Operator, name="CLZ", code=35, operands="input1"):
    """Leading zeros of int32."""


@dataclass(frozen=True)
class Cos(Operator, name="COS", code=36, operands="input1"):
    """Cosine, floats only."""


@dataclass(frozen=True)
class Exp(Operator, name="EXP", code=37, operands="input1"):
    """Exponential, floats only."""


@dataclass(frozen=True)
class Floor(Operator, name="FLOOR", code=38, operands="input1"):
    """Rounded down, floats only."""


@dataclass(frozen=True)
class Log(Operator, name="LOG", code=39, operands="input1"):
    """Natural logarithm, floats only."""


@dataclass(frozen=True)
class LogicalNot(Operator, name="LOGICAL_NOT", code=40, operands="input1"):
    """Not of booleans."""


@dataclass(frozen=True)
class Negate(Operator, name="NEGATE", code=41, operands="input1 input1_zp output_zp"):
    """Negated value; zero points other than 0 for int8 only."""


@dataclass(frozen=True)
class Reciprocal(Operator, name="RECIPROCAL", code=42, operands="input1"):
    """1 / x, floats only."""


@dataclass(frozen=True)
class Rsqrt(Operator, name="RSQRT", code=43, operands="input1"):
    """1 / sqrt(x), floats only."""


@dataclass(frozen=True)
class Sin(Operator, name="SIN", code=44, operands="input1"):
    """Sine, floats only."""


@dataclass(frozen=True)
class Select(Operator, name="SELECT", code=45, operands="input1 input2 input3"):
    """input2 where input1 is true, else input3."""


@dataclass(frozen=True)
class Equal(Operator, name="EQUAL", code=46, operands="input1 input2"):
    """True where two values are equal."""


@dataclass(frozen=True)
class Greater(Operator, name="GREATER", code=47, operands="input1 input2"):
    """True where the first value is greater."""


@dataclass(frozen=True)
class GreaterEqual(Operator, name="GREATER_EQUAL", code=48, operands="input1 input2"):
    """True where the first value is greater or equal."""


@dataclass(frozen=True)
class ReduceAll(Operator, name="REDUCE_ALL", code=49, operands="input"):
    """True where all are true along `axis`, which is kept with size 1."""

    axis: int


@dataclass(frozen=True)
class ReduceAny(Operator, name="REDUCE_ANY", code=50, operands="input"):
    """True where any is true along `axis`, which is kept with size 1."""

    axis: int


@dataclass(frozen=True)
class ReduceMax(Operator, name="REDUCE_MAX", code=51, operands="input"):
    """Largest value along `axis`, which is kept with size 1."""

    axis: int
    nan_mode: NanMode = NanMode.PROPAGATE


@dataclass(frozen=True)
class ReduceMin(Operator, name="REDUCE_MIN", code=52, operands="input"):
    """Smallest value along `axis`, which is kept with size 1."""

    axis: int
    nan_mode: NanMode = NanMode.PROPAGATE


@dataclass(frozen=True)
class ReduceProduct(Operator, name="REDUCE_PRODUCT", code=53, operands="input"):
    """Product along `axis`, which is kept with size 1; floats only."""

    axis: int


@dataclass(frozen=True)
class ReduceSum(Operator, name="REDUCE_SUM", code=54, operands="input"):
    """Sum along `axis`, which is kept with size 1."""

    axis: int


@dataclass(frozen=True)
class Concat(Operator, name="CONCAT", code=55, operands="input"):
    """Any number of inputs, concatenated along `axis`."""

    axis: int


@dataclass(frozen=True)
class Pad(Operator, name="PAD", code=56, operands="input1 padding pad_const"):
    """`padding` (SHAPE): before and after each axis in turn, filled with `pad_const` (one element)."""


@dataclass(frozen=True)
class Reshape(Operator, name="RESHAPE", code=57, operands="input1 shape"):
    """The same elements in another shape."""


@dataclass(frozen=True)
class Reverse(Operator, name="REVERSE", code=58, operands="input1"):
    """Reversed along `axis`."""

    axis: int


@dataclass(frozen=True)
class Slice(Operator, name="SLICE", code=59, operands="input1 start size"):
    """A block from `start` with `size` (both SHAPE)."""


@dataclass(frozen=True)
class Tile(Operator, name="TILE", code=60, operands="input1 multiples"):
    """Repeated `multiples` (SHAPE) times along each axis."""


@dataclass(frozen=True)
class Transpose(Operator, name="TRANSPOSE", code=61, operands="input1"):
    """Axes in the order `perms`."""

    perms: tuple[int, ...]


@dataclass(frozen=True)
class Gather(Operator, name="GATHER", code=62, operands="values indices"):
    """values (N, K, C), indices (N, W) int32 -> (N, W, C)."""


@dataclass(frozen=True)
class Scatter(Operator, name="SCATTER", code=63, operands="values_in indices input"):
    """values_in (N, K, C) with rows at indices (N, W) replaced by input (N, W, C)."""


@dataclass(frozen=True)
class Resize(Operator, name="RESIZE", code=64, operands="input scale offset border"):
    """Resized image, NHWC. `scale` (y and x, each as n, d), `offset` and `border` (y, x) are SHAPEs."""

    mode: ResizeMode


@dataclass(frozen=True)
class Cast(Operator, name="CAST", code=65, operands="input"):
    """Conversion to another element type."""


@dataclass(frozen=True)
class Rescale(Operator, name="RESCALE", code=66, operands="input multiplier shift input_zp output_zp"):
    """(input - input_zp) * multiplier / 2**shift + output_zp, saturated.

    `multiplier` (int32, or int16 without `scale32`) and `shift` (int8) have one element, or one for each index of the
    last axis with `per_channel`. The zero points have the types of input and output.
    """

    scale32: bool = True
    rounding: Rounding = Rounding.SINGLE
    per_channel: bool = False
    input_unsigned: bool = False
    output_unsigned: bool = False


@dataclass(frozen=True)
class Identity(Operator, name="IDENTITY", code=68, operands="input1"):
    """The input."""
