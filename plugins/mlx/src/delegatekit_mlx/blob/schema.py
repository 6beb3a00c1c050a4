"""The flatbuffer tables of an MLX delegate's graph, as ExecuTorch's MLX backend (1.5) reads them.

Slots, numbers and names follow that backend's schema (`serialization/schema.fbs`, version "1"), which only grows at its
ends. Tensors and values are numbered: what a field does with those that it names is its `Role`, by which graphs are
written, checked and run.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from enum import Enum
from typing import Any, Final

from delegatekit_toolkit import flatbuffer as fb

VERSION: Final = "1"
#: The kinds of slots.
TENSOR: Final = 0


class Role(Enum):
    """What a field has."""

    READS = "a tensor that is read"
    READS_ALL = "tensors that are read"
    WRITES = "the tensor that is computed"
    WRITES_ALL = "the tensors that are computed"
    READS_VALUE = "a value that is read"
    WRITES_VALUE = "the value that is computed"
    TERM = "a number, or a value or tensor that is read"
    TERMS = "numbers, or values that are read"
    OTHER = "something else"


@dataclass(frozen=True)
class Place:
    """A field of a table by its name."""

    name: str
    role: Role
    #: It must be there.
    required: bool


def _marked(made: Any, role: Role, *, required: bool) -> Any:
    assert isinstance(made, Field)
    return field(default=made.default, metadata={**made.metadata, "role": role, "required": required})


def reads() -> Any:
    """A tensor that is read. Its number is a struct of the format, with the bytes of a u32, and is always written."""
    return _marked(fb.u32(None), Role.READS, required=True)


def may_read() -> Any:
    """A tensor that is read, or None."""
    return _marked(fb.u32(None), Role.READS, required=False)


def reads_all() -> Any:
    """Tensors that are read."""
    return _marked(fb.vector("u32"), Role.READS_ALL, required=True)


def writes() -> Any:
    """The tensor that is computed."""
    return _marked(fb.u32(None), Role.WRITES, required=True)


def writes_all() -> Any:
    """The tensors that are computed."""
    return _marked(fb.vector("u32"), Role.WRITES_ALL, required=True)


def writes_value() -> Any:
    """The value that is computed."""
    return _marked(fb.u32(None), Role.WRITES_VALUE, required=True)


def may_read_value() -> Any:
    """A value that is read, or None."""
    return _marked(fb.u32(None), Role.READS_VALUE, required=False)


def required(made: Any) -> Any:
    """A field that must be there."""
    return _marked(made, Role.OTHER, required=True)


def integer(*, optional: bool = False) -> Any:
    """A number, or a value that is read."""
    return _marked(fb.ref(lambda: IntOrVid), Role.TERM, required=not optional)


def integers(*, optional: bool = False) -> Any:
    """Numbers, or values that are read."""
    return _marked(fb.tables(lambda: IntOrVid), Role.TERMS, required=not optional)


def number() -> Any:
    """A floating-point number, or a value that is read."""
    return _marked(fb.ref(lambda: FloatOrVid), Role.TERM, required=True)


def position() -> Any:
    """A value or a tensor that is read."""
    return _marked(fb.ref(lambda: VidOrTid), Role.TERM, required=True)


def index() -> Any:
    """A number, or a value or a tensor that is read."""
    return _marked(fb.ref(lambda: IntOrVidOrTid), Role.TERM, required=True)


#: Table -> what `places` found.
_PLACES: Final[dict[type, tuple[Place, ...]]] = {}


def places(table: type[fb.Table]) -> tuple[Place, ...]:
    """The fields of a table, in order."""
    if table not in _PLACES:
        _PLACES[table] = tuple(
            Place(item.name, item.metadata.get("role", Role.OTHER), bool(item.metadata.get("required")))
            for item in fields(table)  # type: ignore[arg-type]
        )
    return _PLACES[table]


# -- terms -------------------------------------------------------------------------------------------------------------


class IntOrVid(fb.Table):
    """An integer, or the number of a value."""

    literal: int = fb.i64()
    vid: int | None = fb.u32(None)
    is_vid: bool = fb.bool_(False)


class FloatOrVid(fb.Table):
    """A floating-point number, or the number of a value."""

    literal: float = fb.f64()
    vid: int | None = fb.u32(None)
    is_vid: bool = fb.bool_(False)


class VidOrTid(fb.Table):
    """The number of a value, or of a tensor."""

    vid: int | None = fb.u32(None)
    tid: int | None = fb.u32(None)
    is_vid: bool = fb.bool_(False)


class IntOrVidOrTid(fb.Table):
    """An integer (kind 0), or the number of a value (1) or of a tensor (2)."""

    literal: int = fb.i64()
    vid: int | None = fb.u32(None)
    tid: int | None = fb.u32(None)
    kind: int = fb.u8(0)


# -- forms that operators share ----------------------------------------------------------------------------------------


class Unary(fb.Table):
    """A function of one tensor."""

    x: int = reads()
    out: int = writes()


class Binary(fb.Table):
    """A function of two tensors, which broadcast."""

    a: int = reads()
    b: int = reads()
    out: int = writes()


class Integers(fb.Table):
    """A function of two integers."""

    a: IntOrVid = integer()
    b: IntOrVid = integer()
    out: int = writes_value()


class Reduction(Unary):
    """A reduction along axes: all of them, if none are listed."""

    axes: list[int] | None = fb.vector("i32")
    keepdims: bool = fb.bool_(False)


class AlongAxis(Unary):
    """A function along an axis."""

    axis: int = fb.i32()


class Extreme(AlongAxis):
    """The place of an element along an axis."""

    keepdims: bool = fb.bool_(False)


class Triangle(Unary):
    """A part of the last two axes, beside a diagonal."""

    k: int = fb.i32(0)


# -- operators ---------------------------------------------------------------------------------------------------------


class NoopNode(fb.Table):
    """Nothing."""


class IdCopyNode(Unary):
    """The same tensor under another number."""


class AddmmNode(fb.Table):
    """alpha (mat1 @ mat2) + beta bias."""

    mat1: int = reads()
    mat2: int = reads()
    out: int = writes()
    bias: int | None = may_read()
    alpha: float = fb.f32(1.0)
    beta: float = fb.f32(1.0)


class ItemIntNode(fb.Table):
    """The one element of a tensor as a value."""

    x: int = reads()
    out: int = writes_value()


class ExpandDimsNode(AlongAxis):
    """`mlx.core.expand_dims`."""


class TileNode(Unary):
    """`mlx.core.tile`."""

    reps: list[IntOrVid] = integers()


class TakeAlongAxisNode(fb.Table):
    """Elements along an axis by indices for each place."""

    x: int = reads()
    indices: int = reads()
    out: int = writes()
    axis: int = fb.i32()


class TakeNode(Unary):
    """Elements along an axis: one, which drops the axis, or those of a tensor of indices."""

    index: IntOrVidOrTid = index()
    axis: int = fb.i32()


class RMSNormNode(fb.Table):
    """`mlx.core.fast.rms_norm`, over the last axis."""

    x: int = reads()
    weight: int | None = may_read()
    out: int = writes()
    eps: float = fb.f32()


class LayerNormNode(Unary):
    """`mlx.core.fast.layer_norm`, over the last axis."""

    weight: int | None = may_read()
    bias: int | None = may_read()
    eps: float = fb.f32()


class RopeNode(Unary):
    """`mlx.core.fast.rope`."""

    dims: int = fb.i32()
    offset: VidOrTid = position()
    freqs: int | None = may_read()
    traditional: bool = fb.bool_(False)
    base: float = fb.f32(500000.0)
    scale: float = fb.f32(1.0)


class SdpaNode(fb.Table):
    """`mlx.core.fast.scaled_dot_product_attention` of (batch, heads, length, size)."""

    q: int = reads()
    k: int = reads()
    v: int = reads()
    out: int = writes()
    scale: float = fb.f32()
    mask: int | None = may_read()
    causal: bool = fb.bool_(False)


class AddNode(Binary):
    """`mlx.core.add`."""


class AddIntNode(Integers):
    """The sum of two values."""


class SubtractIntNode(Integers):
    """The difference of two values."""


class MultiplyIntNode(Integers):
    """The product of two values."""


class FloorDivideIntNode(Integers):
    """The quotient of two values, rounded down."""


class SymSizeNode(fb.Table):
    """The size of a tensor along an axis as a value."""

    a: int = reads()
    dim: int = fb.i32()
    out: int = writes_value()


class MultiplyNode(Binary):
    """`mlx.core.multiply`."""


class DivideNode(Binary):
    """`mlx.core.divide`."""


class SubtractNode(Binary):
    """`mlx.core.subtract`."""


class Conv1DNode(fb.Table):
    """Convolution of (N, L, C) by (O, K, C / groups)."""

    x: int = reads()
    w: int = reads()
    out: int = writes()
    stride: int = fb.i32(1)
    padding: int = fb.i32(0)
    dilation: int = fb.i32(1)
    groups: int = fb.i32(1)


class Conv2DNode(fb.Table):
    """Convolution of (N, H, W, C) by (O, KH, KW, C / groups)."""

    x: int = reads()
    w: int = reads()
    out: int = writes()
    stride_h: int = fb.i32(1)
    stride_w: int = fb.i32(1)
    padding_h: int = fb.i32(0)
    padding_w: int = fb.i32(0)
    dilation_h: int = fb.i32(1)
    dilation_w: int = fb.i32(1)
    groups: int = fb.i32(1)


class Conv3DNode(fb.Table):
    """Convolution of (N, D, H, W, C) by (O, KD, KH, KW, C / groups)."""

    x: int = reads()
    w: int = reads()
    out: int = writes()
    stride_d: int = fb.i32(1)
    stride_h: int = fb.i32(1)
    stride_w: int = fb.i32(1)
    padding_d: int = fb.i32(0)
    padding_h: int = fb.i32(0)
    padding_w: int = fb.i32(0)
    dilation_d: int = fb.i32(1)
    dilation_h: int = fb.i32(1)
    dilation_w: int = fb.i32(1)
    groups: int = fb.i32(1)


class GeluNode(Unary):
    """GELU, by the error function ("none") or by the hyperbolic tangent ("tanh")."""

    approximate: str = required(fb.string())


class ARangeNode(fb.Table):
    """Integers from start up to before stop."""

    out: int = writes()
    start: IntOrVid = integer()
    stop: IntOrVid = integer()
    step: IntOrVid = integer()
    scalar_type: int | None = fb.i8(None)


class SiluNode(Unary):
    """x times its sigmoid."""


class SigmoidNode(Unary):
    """`mlx.core.sigmoid`."""


class TanhNode(Unary):
    """`mlx.core.tanh`."""


class SqueezeNode(Unary):
    """Without axes of size 1: without all such where none are listed."""

    dims: list[int] | None = fb.vector("i32")


class SplitNode(fb.Table):
    """Parts of these sizes along an axis."""

    x: int = reads()
    outs: list[int] = writes_all()
    sizes: list[IntOrVid] = integers()
    axis: int = fb.i32()


class RsqrtNode(Unary):
    """`mlx.core.rsqrt`."""


class MaximumNode(Binary):
    """`mlx.core.maximum`."""


class MinimumNode(Binary):
    """`mlx.core.minimum`."""


class LogNode(Unary):
    """`mlx.core.log`."""


class SoftmaxNode(AlongAxis):
    """Softmax along an axis; a precise one sums halves in float32."""

    precise: bool = fb.bool_(False)


class BroadcastToNode(Unary):
    """`mlx.core.broadcast_to`."""

    shape: list[IntOrVid] = integers()


class PadNode(Unary):
    """Padding, two numbers for each axis; a mode of mlx."""

    pad_width: list[IntOrVid] = integers()
    mode: str = required(fb.string())
    constant_value: float = fb.f32(0.0)


class WhereNode(fb.Table):
    """`mlx.core.where`."""

    condition: int = reads()
    x: int = reads()
    y: int = reads()
    out: int = writes()


class ReshapeNode(Unary):
    """`mlx.core.reshape`."""

    shape: list[IntOrVid] = integers()


class TransposeNode(Unary):
    """`mlx.core.transpose`."""

    perm: list[int] = required(fb.vector("i32"))


class AsStridedNode(Unary):
    """A view of the elements in row-major order."""

    shape: list[IntOrVid] = integers()
    strides: list[IntOrVid] = integers()
    offset: int = fb.u64(0)


class ContiguousNode(Unary):
    """The elements in row-major order in memory."""


class GatherNode(fb.Table):
    """Slices at places along several axes: the axes of the indices, then those of the slices."""

    x: int = reads()
    indices: list[int] = reads_all()
    out: int = writes()
    axes: list[int] = required(fb.vector("i32"))
    slice_sizes: list[int] = required(fb.vector("i32"))


class SliceNode(Unary):
    """A part along an axis; bounds as those of Python's slices."""

    axis: IntOrVid = integer()
    start: IntOrVid = integer()
    stop: IntOrVid = integer()
    step: int = fb.i32(1)


class AsTypeNode(Unary):
    """Conversion to another element type."""

    scalar_type: int = fb.i8()


class ConcatenateNode(fb.Table):
    """`mlx.core.concatenate`."""

    tensors: list[int] = reads_all()
    out: int = writes()
    axis: int = fb.i32()


class FullNode(fb.Table):
    """A tensor of one number."""

    out: int = writes()
    shape: list[IntOrVid] = integers()
    v: FloatOrVid = number()
    scalar_type: int = fb.i8()


class FullLikeNode(Unary):
    """A tensor of one number with the sizes of another one."""

    v: FloatOrVid = number()
    scalar_type: int | None = fb.i8(None)


class ArgmaxNode(Extreme):
    """`mlx.core.argmax`."""


class SliceUpdateNode(fb.Table):
    """A tensor with another one in the place of a part along an axis."""

    dst: int = reads()
    update: int = reads()
    out: int = writes()
    axis: IntOrVid = integer()
    start: IntOrVid = integer()
    stop: IntOrVid = integer()
    step: int = fb.i32(1)


class IndexCopyNode(fb.Table):
    """A tensor with slices of another one at places along an axis."""

    dst: int = reads()
    update: int = reads()
    indices: int = reads()
    out: int = writes()
    axis: int = fb.i32()


class DequantizeNode(fb.Table):
    """`mlx.core.dequantize`."""

    w: int = reads()
    scales: int = reads()
    out: int = writes()
    biases: int | None = may_read()
    group_size: int = fb.i32()
    bits: int = fb.i32()
    mode: str = required(fb.string())
    global_scale: int | None = may_read()
    dtype: int | None = fb.i8(None)


class LessNode(Binary):
    """`mlx.core.less`."""


class LessEqualNode(Binary):
    """`mlx.core.less_equal`."""


class GreaterNode(Binary):
    """`mlx.core.greater`."""


class GreaterEqualNode(Binary):
    """`mlx.core.greater_equal`."""


class EqualNode(Binary):
    """`mlx.core.equal`."""


class NotEqualNode(Binary):
    """`mlx.core.not_equal`."""


class LogicalNotNode(Unary):
    """`mlx.core.logical_not`."""


class LogicalAndNode(Binary):
    """`mlx.core.logical_and`."""


class LogicalOrNode(Binary):
    """`mlx.core.logical_or`."""


class TriNode(fb.Table):
    """`mlx.core.tri`."""

    out: int = writes()
    n: IntOrVid = integer()
    m: IntOrVid = integer()
    k: int = fb.i32(0)
    scalar_type: int = fb.i8()


class TrilNode(Triangle):
    """`mlx.core.tril`."""


class TriuNode(Triangle):
    """`mlx.core.triu`."""


class FloorNode(Unary):
    """`mlx.core.floor`."""


class CeilNode(Unary):
    """`mlx.core.ceil`."""


class SquareNode(Unary):
    """`mlx.core.square`."""


class ExpNode(Unary):
    """`mlx.core.exp`."""


class SinNode(Unary):
    """`mlx.core.sin`."""


class CosNode(Unary):
    """`mlx.core.cos`."""


class TanNode(Unary):
    """`mlx.core.tan`."""


class ArcsinNode(Unary):
    """`mlx.core.arcsin`."""


class ArccosNode(Unary):
    """`mlx.core.arccos`."""


class ArctanNode(Unary):
    """`mlx.core.arctan`."""


class SinhNode(Unary):
    """`mlx.core.sinh`."""


class CoshNode(Unary):
    """`mlx.core.cosh`."""


class ArcsinhNode(Unary):
    """`mlx.core.arcsinh`."""


class ArccoshNode(Unary):
    """`mlx.core.arccosh`."""


class ArctanhNode(Unary):
    """`mlx.core.arctanh`."""


class Log2Node(Unary):
    """`mlx.core.log2`."""


class Log10Node(Unary):
    """`mlx.core.log10`."""


class Log1pNode(Unary):
    """`mlx.core.log1p`."""


class ErfNode(Unary):
    """`mlx.core.erf`."""


class Expm1Node(Unary):
    """`mlx.core.expm1`."""


class RoundNode(Unary):
    """`mlx.core.round`."""

    decimals: int = fb.i32(0)


class ReciprocalNode(Unary):
    """`mlx.core.reciprocal`."""


class SqrtNode(Unary):
    """`mlx.core.sqrt`."""


class AbsNode(Unary):
    """`mlx.core.abs`."""


class NegNode(Unary):
    """`mlx.core.negative`."""


class Atan2Node(Binary):
    """`mlx.core.arctan2`."""


class LogAddExpNode(Binary):
    """`mlx.core.logaddexp`."""


class FloorDivideNode(Binary):
    """`mlx.core.floor_divide`."""


class PowerNode(Binary):
    """`mlx.core.power`."""


class LogSumExpNode(Reduction):
    """`mlx.core.logsumexp`."""


class SumNode(Reduction):
    """`mlx.core.sum`."""


class MeanNode(Reduction):
    """`mlx.core.mean`."""


class VarNode(Reduction):
    """`mlx.core.var`."""

    ddof: int = fb.i32(0)


class StdNode(Reduction):
    """`mlx.core.std`."""

    ddof: int = fb.i32(0)


class ProdNode(Reduction):
    """`mlx.core.prod`."""


class MaxNode(Reduction):
    """`mlx.core.max`."""


class MinNode(Reduction):
    """`mlx.core.min`."""


class ArgminNode(Extreme):
    """`mlx.core.argmin`."""


class MedianNode(Reduction):
    """`mlx.core.median`."""


class ModIntNode(Integers):
    """The remainder of two values."""


class RemainderNode(Binary):
    """`mlx.core.remainder`."""


class ConvTranspose1DNode(fb.Table):
    """Transposed convolution, arranged like Conv1DNode."""

    x: int = reads()
    w: int = reads()
    out: int = writes()
    stride: int = fb.i32(1)
    padding: int = fb.i32(0)
    dilation: int = fb.i32(1)
    output_padding: int = fb.i32(0)
    groups: int = fb.i32(1)


class ConvTranspose2DNode(fb.Table):
    """Transposed convolution, arranged like Conv2DNode."""

    x: int = reads()
    w: int = reads()
    out: int = writes()
    stride_h: int = fb.i32(1)
    stride_w: int = fb.i32(1)
    padding_h: int = fb.i32(0)
    padding_w: int = fb.i32(0)
    dilation_h: int = fb.i32(1)
    dilation_w: int = fb.i32(1)
    output_padding_h: int = fb.i32(0)
    output_padding_w: int = fb.i32(0)
    groups: int = fb.i32(1)


class ConvTranspose3DNode(fb.Table):
    """Transposed convolution, arranged like Conv3DNode."""

    x: int = reads()
    w: int = reads()
    out: int = writes()
    stride_d: int = fb.i32(1)
    stride_h: int = fb.i32(1)
    stride_w: int = fb.i32(1)
    padding_d: int = fb.i32(0)
    padding_h: int = fb.i32(0)
    padding_w: int = fb.i32(0)
    dilation_d: int = fb.i32(1)
    dilation_h: int = fb.i32(1)
    dilation_w: int = fb.i32(1)
    output_padding_d: int = fb.i32(0)
    output_padding_h: int = fb.i32(0)
    output_padding_w: int = fb.i32(0)
    groups: int = fb.i32(1)


class ClipNode(Unary):
    """A tensor between two others, if these are given."""

    a_min: int | None = may_read()
    a_max: int | None = may_read()


class CumsumNode(AlongAxis):
    """`mlx.core.cumsum`."""

    reverse: bool = fb.bool_(False)
    inclusive: bool = fb.bool_(True)


class StackNode(fb.Table):
    """`mlx.core.stack`."""

    tensors: list[int] = reads_all()
    out: int = writes()
    axis: int = fb.i32(0)


class SignNode(Unary):
    """`mlx.core.sign`."""


class AnyNode(Reduction):
    """`mlx.core.any`."""


class AllNode(Reduction):
    """`mlx.core.all`."""


class RepeatNode(Unary):
    """Each element several times along an axis."""

    repeats: IntOrVid = integer()
    axis: int = fb.i32()


class SortNode(AlongAxis):
    """`mlx.core.sort`."""


class ArgsortNode(AlongAxis):
    """`mlx.core.argsort`."""


class PartitionNode(Unary):
    """`mlx.core.partition`."""

    kth: IntOrVid = integer()
    axis: int = fb.i32()


class ArgPartitionNode(Unary):
    """`mlx.core.argpartition`."""

    kth: IntOrVid = integer()
    axis: int = fb.i32()


class QuantizedMatmulNode(fb.Table):
    """`mlx.core.quantized_matmul`."""

    x: int = reads()
    w: int = reads()
    scales: int = reads()
    out: int = writes()
    biases: int | None = may_read()
    group_size: int = fb.i32()
    bits: int = fb.i32()
    mode: str = required(fb.string())
    transpose: bool = fb.bool_(True)


class ScatterAddNode(fb.Table):
    """x and what is added to it at the indices' places along an axis."""

    x: int = reads()
    indices: int = reads()
    updates: int = reads()
    out: int = writes()
    axis: int = fb.i32()


class GatherMmNode(Binary):
    """`mlx.core.gather_mm`."""

    lhs_indices: int | None = may_read()
    rhs_indices: int | None = may_read()
    sorted_indices: bool = fb.bool_(False)
    sorted_indices_flag: IntOrVid | None = integer(optional=True)


class GatherQmmNode(fb.Table):
    """`mlx.core.gather_qmm`."""

    x: int = reads()
    w: int = reads()
    scales: int = reads()
    out: int = writes()
    mode: str = required(fb.string())
    biases: int | None = may_read()
    lhs_indices: int | None = may_read()
    rhs_indices: int | None = may_read()
    transpose: bool = fb.bool_(True)
    group_size: int = fb.i32()
    bits: int = fb.i32()
    sorted_indices: bool = fb.bool_(False)
    sorted_indices_flag: IntOrVid | None = integer(optional=True)


class ScanNode(fb.Table):
    """A chain for each slice along an axis."""

    originals: list[int] = reads_all()
    sliced: list[int] = writes_all()
    outputs: list[int] = writes_all()
    carry: list[int] = reads_all()
    body_chain_idx: int = fb.i32()
    scan_axis: int = fb.i32(1)


class MetalKernelNode(fb.Table):
    """A program for Apple's GPUs in source."""

    name: str = required(fb.string())
    source: str = required(fb.string())
    inputs: list[int] = reads_all()
    outputs: list[int] = writes_all()
    grid: list[IntOrVid] = integers()
    threadgroup: list[IntOrVid] = integers()
    header: str | None = fb.string()
    input_names: list[str] | None = fb.strings()
    output_names: list[str] | None = fb.strings()
    ensure_row_contiguous: bool = fb.bool_(True)
    atomic_outputs: bool = fb.bool_(False)
    output_shapes_flat: list[IntOrVid] | None = integers(optional=True)
    output_shape_lengths: list[int] | None = fb.vector("i32")
    output_dtypes: list[int] | None = fb.vector("i8")
    template_arg_names: list[str] | None = fb.strings()
    template_arg_kinds: list[int] | None = fb.vector("i8")
    template_arg_values: list[int] | None = fb.vector("i32")
    init_value: float | None = fb.f32(None)


class BitwiseInvertNode(Unary):
    """`mlx.core.bitwise_invert`."""


class RollNode(Unary):
    """`mlx.core.roll`."""

    shift: list[IntOrVid] = integers()
    axes: list[int] = required(fb.vector("i32"))


class BitwiseAndNode(Binary):
    """`mlx.core.bitwise_and`."""


class BitwiseOrNode(Binary):
    """`mlx.core.bitwise_or`."""


class BitwiseXorNode(Binary):
    """`mlx.core.bitwise_xor`."""


class IfNode(fb.Table):
    """One of two chains."""

    cond: IntOrVid = integer()
    then_chain_idx: int = fb.u32()
    else_chain_idx: int = fb.u32()


class RandomBitsNode(fb.Table):
    """Random bits."""

    out: int = writes()
    shape: list[IntOrVid] = integers()
    seed: int | None = may_read_value()
    width: int = fb.i32(4)


class UpdateAndAttendNode(fb.Table):
    """Attention on a cache that the runtime keeps."""

    q: int = reads()
    k: int = reads()
    v: int = reads()
    position: int = reads()
    out: int = writes()
    layer_id: int | None = fb.i32(None)
    scale: float | None = fb.f32(None)
    out_dtype: int | None = fb.i8(None)


class TruncNode(Unary):
    """`mlx.core.trunc`."""


class FlipNode(Unary):
    """`mlx.core.flip`."""

    axes: list[int] = required(fb.vector("i32"))


#: The operators by their codes, which count from 1: new ones are added at the end.
OPERATORS: Final[tuple[type[fb.Table], ...]] = (
    NoopNode,
    IdCopyNode,
    AddmmNode,
    ItemIntNode,
    ExpandDimsNode,
    TileNode,
    TakeAlongAxisNode,
    TakeNode,
    RMSNormNode,
    LayerNormNode,
    RopeNode,
    SdpaNode,
    AddNode,
    AddIntNode,
    SubtractIntNode,
    MultiplyIntNode,
    FloorDivideIntNode,
    SymSizeNode,
    MultiplyNode,
    DivideNode,
    SubtractNode,
    Conv1DNode,
    Conv2DNode,
    Conv3DNode,
    GeluNode,
    ARangeNode,
    SiluNode,
    SigmoidNode,
    TanhNode,
    SqueezeNode,
    SplitNode,
    RsqrtNode,
    MaximumNode,
    MinimumNode,
    LogNode,
    SoftmaxNode,
    BroadcastToNode,
    PadNode,
    WhereNode,
    ReshapeNode,
    TransposeNode,
    AsStridedNode,
    ContiguousNode,
    GatherNode,
    SliceNode,
    AsTypeNode,
    ConcatenateNode,
    FullNode,
    FullLikeNode,
    ArgmaxNode,
    SliceUpdateNode,
    IndexCopyNode,
    DequantizeNode,
    LessNode,
    LessEqualNode,
    GreaterNode,
    GreaterEqualNode,
    EqualNode,
    NotEqualNode,
    LogicalNotNode,
    LogicalAndNode,
    LogicalOrNode,
    TriNode,
    TrilNode,
    TriuNode,
    FloorNode,
    CeilNode,
    SquareNode,
    ExpNode,
    SinNode,
    CosNode,
    TanNode,
    ArcsinNode,
    ArccosNode,
    ArctanNode,
    SinhNode,
    CoshNode,
    ArcsinhNode,
    ArccoshNode,
    ArctanhNode,
    Log2Node,
    Log10Node,
    Log1pNode,
    ErfNode,
    Expm1Node,
    RoundNode,
    ReciprocalNode,
    SqrtNode,
    AbsNode,
    NegNode,
    Atan2Node,
    LogAddExpNode,
    FloorDivideNode,
    PowerNode,
    LogSumExpNode,
    SumNode,
    MeanNode,
    VarNode,
    StdNode,
    ProdNode,
    MaxNode,
    MinNode,
    ArgminNode,
    MedianNode,
    ModIntNode,
    RemainderNode,
    ConvTranspose1DNode,
    ConvTranspose2DNode,
    ConvTranspose3DNode,
    ClipNode,
    CumsumNode,
    StackNode,
    SignNode,
    AnyNode,
    AllNode,
    RepeatNode,
    SortNode,
    ArgsortNode,
    PartitionNode,
    ArgPartitionNode,
    QuantizedMatmulNode,
    ScatterAddNode,
    GatherMmNode,
    GatherQmmNode,
    ScanNode,
    MetalKernelNode,
    BitwiseInvertNode,
    RollNode,
    BitwiseAndNode,
    BitwiseOrNode,
    BitwiseXorNode,
    IfNode,
    RandomBitsNode,
    UpdateAndAttendNode,
    TruncNode,
    FlipNode,
)


# -- the graph ---------------------------------------------------------------------------------------------------------


class Instruction(fb.Table):
    """One operator."""

    op: fb.Table | None = fb.union(lambda: OPERATORS)


class InstructionChain(fb.Table):
    """Operators, one after the other."""

    instructions: list[Instruction] = required(fb.tables(lambda: Instruction))


class ShapeDim(fb.Table):
    """A size, or -1 and the bounds of one that changes (-1: no bound)."""

    value: int = fb.i32(-1)
    min_value: int = fb.i32(0)
    max_value: int = fb.i32(-1)


class TensorMeta(fb.Table):
    """Sizes, element type (ExecuTorch's number), and the order of the axes in memory."""

    shape: list[ShapeDim] = required(fb.tables(lambda: ShapeDim))
    scalar_type: int = fb.i8()
    dim_order: bytes | None = fb.vector("u8")


class SlotVariant(fb.Table):
    """A tensor (`TENSOR`), or a value of another kind."""

    idx: int = fb.u32()
    slot_type: int = fb.i8(TENSOR)


class NamedSlot(fb.Table):
    """A tensor by its name: that of a constant is the key of its data."""

    name: str = required(fb.string())
    slot: SlotVariant = required(fb.ref(lambda: SlotVariant))


class MLXGraph(fb.Table):
    """The whole graph. Tensors are numbered in the order of the counts."""

    version: str | None = fb.string()
    num_constant_tensors: int = fb.u32()
    num_input_tensors: int = fb.u32()
    num_output_tensors: int = fb.u32()
    num_mutable_buffer_tensors: int = fb.u32()
    num_temp_tensors: int = fb.u32()
    num_values: int = fb.u32()
    instruction_chains: list[InstructionChain] = required(fb.tables(lambda: InstructionChain))
    #: The chain that each call runs.
    main_chain_idx: int = fb.u32(0)
    #: The chain that runs once before, or -1.
    init_chain_idx: int = fb.i32(-1)
    input_map: list[SlotVariant] | None = fb.tables(lambda: SlotVariant)
    output_map: list[SlotVariant] | None = fb.tables(lambda: SlotVariant)
    mutable_buffer_map: list[SlotVariant] | None = fb.tables(lambda: SlotVariant)
    named_slots: list[NamedSlot] | None = fb.tables(lambda: NamedSlot)
    #: Of all tensors that are not temporary.
    tensor_meta: list[TensorMeta] | None = fb.tables(lambda: TensorMeta)
