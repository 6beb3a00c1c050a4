"""The operators of ExecuTorch's Vulkan runtime (1.5) that this backend calls, and the tensor forms that it requires.

Facts of that release: the storage of a call's tensors, and operators that support other sizes in later calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .types import TEXTURE_RANK, Layout, Storage

if TYPE_CHECKING:
    from .graph import Node


@dataclass(frozen=True)
class Form:
    """Storage and layout of a tensor."""

    storage: Storage
    layout: Layout

    def fits(self, sizes: Sequence[int], texture: tuple[int, int, int]) -> bool:
        """True if a device with textures of at most this many texels can store a tensor of these sizes in this form.

        >>> CHANNELS.fits((1, 64, 112, 112), (2048, 2048, 2048)), WIDTH.fits((1, 1, 3000, 8), (2048, 2048, 2048))
        (True, False)
        """
        if self.storage is Storage.BUFFER:
            return True
        if len(sizes) > TEXTURE_RANK:
            return False
        batch, channels, height, width = (1,) * (TEXTURE_RANK - len(sizes)) + tuple(sizes)
        texels = {
            Layout.WIDTH_PACKED: (-(-width // 4), height, channels * batch),
            Layout.HEIGHT_PACKED: (width, -(-height // 4), channels * batch),
            Layout.CHANNELS_PACKED: (width, height, -(-channels // 4) * batch),
        }[self.layout]
        return all(0 < size <= most for size, most in zip(texels, texture, strict=True))


WIDTH: Final = Form(Storage.TEXTURE_3D, Layout.WIDTH_PACKED)
HEIGHT: Final = Form(Storage.TEXTURE_3D, Layout.HEIGHT_PACKED)
CHANNELS: Final = Form(Storage.TEXTURE_3D, Layout.CHANNELS_PACKED)
BUFFER: Final = Form(Storage.BUFFER, Layout.WIDTH_PACKED)

#: Integers of 8 bits, four in a word: of channels and pixels, of rows and columns, of one row.
INT8_BLOCKS: Final = Form(Storage.BUFFER, Layout.INT8_4W4C)
INT8_WINDOWS: Final = Form(Storage.BUFFER, Layout.INT8_CONV2D)
INT8_CHANNELS: Final = Form(Storage.BUFFER, Layout.INT8_4C1W)
INT8_ROWS: Final = Form(Storage.BUFFER, Layout.INT8_4H4W)
INT8_ROW: Final = Form(Storage.BUFFER, Layout.INT8_4W)

#: Accepted forms, the preferred one first.
ANY: Final = (WIDTH, CHANNELS, HEIGHT, BUFFER)
CONTIGUOUS: Final = (WIDTH, BUFFER)
TEXTURES: Final = (WIDTH, CHANNELS, HEIGHT)
ONLY_CHANNELS: Final = (CHANNELS,)
ONLY_HEIGHT: Final = (HEIGHT,)
ONLY_WIDTH: Final = (WIDTH,)
ONLY_BUFFER: Final = (BUFFER,)
CHANNELS_OR_BUFFER: Final = (CHANNELS, BUFFER)
INT8_IMAGES: Final = (INT8_BLOCKS, INT8_CHANNELS, INT8_WINDOWS)
INT8: Final = (INT8_BLOCKS, INT8_ROWS, INT8_ROW, INT8_CHANNELS, INT8_WINDOWS)


@dataclass(frozen=True)
class StockOperator:
    """The properties of an operator of the runtime."""

    #: Forms of its tensors: all of a call share one of them, unless `apart`.
    forms: tuple[Form, ...] = ANY
    #: True if it supports other sizes in later calls.
    resizes: bool = True
    #: True if tensors of more than 4 axes are accepted (in buffers).
    many_axes: bool = False
    #: Forms of the results, if they differ from those of the operands.
    results: tuple[tuple[Form, ...], ...] = ()
    #: True if each tensor of a call may have another one of the forms.
    mixed: bool = False
    #: Positions of arguments with forms of their own, and these.
    apart: Mapping[int, tuple[Form, ...]] = field(default_factory=dict)
    #: Whether each element of the result is computed from those at its own place: it may be an operand's memory.
    pointwise: bool = False
    #: Whether it reduces along axes, which then decide about the forms.
    reduces: bool = False
    #: Whether it computes on integers of 8 bits.
    on_integers: bool = False


def _rows(names: str, **facts: object) -> dict[str, StockOperator]:
    """One entry for each name; names without a namespace are ATen's."""
    entry = StockOperator(**facts)  # type: ignore[arg-type]
    return {name if name.count(".") > 1 else f"aten.{name}": entry for name in names.split()}


# -- operators that passes search ------------------------------------------------------------------------------------

CONVOLUTION: Final = "aten.convolution.default"
#: The same with two more arguments: the minimum and maximum of the result.
CLAMPED_CONVOLUTION: Final = "et_vk.conv_with_clamp.default"
LINEAR: Final = "aten.linear.default"
ADD: Final = "aten.add.Tensor"
VIEW: Final = "aten.view_copy.default"
PAD: Final = "aten.constant_pad_nd.default"
MAX: Final = "aten.amax.default"
MIN: Final = "aten.amin.default"
MEAN: Final = "aten.mean.dim"
SUM: Final = "aten.sum.dim_IntList"

# -- operators of quantized programs -----------------------------------------------------------------------------------

#: Activations with one scale known at lowering time.
QUANTIZE: Final = "quantized_decomposed.quantize_per_tensor.default"
DEQUANTIZE: Final = "quantized_decomposed.dequantize_per_tensor.default"
#: Scales of blocks, computed in each call.
CHOOSE: Final = "torchao.choose_qparams_affine.default"
QUANTIZE_BLOCKS: Final = "torchao.quantize_affine.default"
DEQUANTIZE_BLOCKS: Final = "torchao.dequantize_affine.default"
#: Linear layers on float activations: weights of 8 bits, of 4 bits in groups; and on rows quantized in each call.
LINEAR_INT8: Final = "aten._weight_int8pack_mm.default"
LINEAR_INT4: Final = "et_vk.linear_q4gsw.default"
LINEAR_ROWS_INT4: Final = "et_vk.linear_dq8ca_q4gsw.default"
#: On integers, with integers as result.
INT8_LINEAR: Final = "et_vk.q8ta_linear.default"
#: Of one row.
INT8_LINEAR_ROW: Final = "et_vk.q8ta_linear_gemv.default"
INT8_CONVOLUTION: Final = "et_vk.q8ta_conv2d.default"
INT8_POINTWISE: Final = "et_vk.q8ta_conv2d_pw.default"
INT8_DEPTHWISE: Final = "et_vk.q8ta_conv2d_dw.default"
INT8_TRANSPOSED: Final = "et_vk.q8ta_conv2d_transposed.default"
INT8_ADD: Final = "et_vk.q8ta_add.default"

#: Operator -> facts.
STOCK: Final[dict[str, StockOperator]] = {
    **_rows(
        "abs.default cos.default exp.default gelu.default hardshrink.default hardswish.default hardtanh.default "
        "neg.default relu.default sigmoid.default sin.default sqrt.default rsqrt.default tanh.default round.default "
        "leaky_relu.default log10.default clamp.default"
    ),
    **_rows("add.Tensor sub.Tensor minimum.default mul.Tensor div.Tensor", many_axes=True, pointwise=True),
    **_rows(
        "div.Tensor_mode pow.Tensor_Tensor eq.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor bitwise_and.Tensor "
        "bitwise_or.Tensor bitwise_not.default logical_and.default logical_or.default logical_not.default "
        "pow.Tensor_Scalar eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar",
        many_axes=True,
    ),
    **_rows("_to_copy.default", forms=ONLY_BUFFER),
    **_rows("where.self", pointwise=True),
    **_rows("_softmax.default _log_softmax.default native_layer_norm.default embedding.default"),
    **_rows("mm.default bmm.default linear.default et_vk.rms_norm.default", forms=CONTIGUOUS),
    **_rows(
        "mean.dim sum.dim_IntList amax.default amin.default argmax.default argmin.default",
        many_axes=True,
        reduces=True,
    ),
    **_rows(
        "avg_pool2d.default max_pool2d.default max_pool2d_with_indices.default convolution.default "
        "et_vk.conv_with_clamp.default",
        forms=ONLY_CHANNELS,
    ),
    **_rows(
        "native_group_norm.default",
        forms=ONLY_CHANNELS,
        resizes=False,
        results=(ONLY_CHANNELS, ONLY_BUFFER, ONLY_BUFFER),
    ),
    **_rows(
        "permute_copy.default view_copy.default squeeze_copy.dims unsqueeze_copy.default clone.default "
        "select_copy.int slice_copy.Tensor gather.default",
        many_axes=True,
    ),
    **_rows("expand_copy.default", many_axes=True, resizes=False),
    **_rows("unfold_copy.default", forms=ONLY_BUFFER, many_axes=True),
    **_rows("cat.default constant_pad_nd.default pixel_shuffle.default arange.start_step"),
    **_rows("repeat.default full.default", resizes=False),
    **_rows("index.Tensor", forms=ONLY_BUFFER, many_axes=True),
    **_rows("flip.default upsample_nearest2d.vec upsample_bilinear2d.vec", forms=ONLY_CHANNELS, resizes=False),
    **_rows("grid_sampler_2d.default", forms=ONLY_CHANNELS, apart={1: ONLY_BUFFER}),
    **_rows("et_vk.prepack.default", many_axes=True),
    **_rows(QUANTIZE, forms=CHANNELS_OR_BUFFER, results=(INT8,), many_axes=True, resizes=False),
    **_rows(DEQUANTIZE, forms=CHANNELS_OR_BUFFER, apart={0: INT8}, many_axes=True, resizes=False),
    **_rows(CHOOSE, forms=CONTIGUOUS, results=(ONLY_WIDTH, ONLY_WIDTH)),
    **_rows(f"{QUANTIZE_BLOCKS} {DEQUANTIZE_BLOCKS}", forms=ONLY_BUFFER),
    **_rows(LINEAR_INT8, forms=CONTIGUOUS),
    **_rows(LINEAR_INT4, forms=CONTIGUOUS, resizes=False),
    **_rows(LINEAR_ROWS_INT4, forms=CONTIGUOUS, apart={1: ONLY_WIDTH, 2: ONLY_WIDTH}, resizes=False),
    **_rows(INT8_LINEAR, forms=(INT8_ROWS,), resizes=False, on_integers=True),
    **_rows(INT8_LINEAR_ROW, forms=(INT8_ROW,), resizes=False, on_integers=True),
    **_rows(
        f"{INT8_CONVOLUTION} {INT8_DEPTHWISE} {INT8_TRANSPOSED}",
        forms=(INT8_WINDOWS,),
        results=(INT8_IMAGES,),
        resizes=False,
        on_integers=True,
    ),
    **_rows(INT8_POINTWISE, forms=(INT8_BLOCKS,), results=(INT8_IMAGES,), resizes=False, on_integers=True),
    **_rows(INT8_ADD, forms=INT8_IMAGES, mixed=True, resizes=False, on_integers=True),
}

_UNKNOWN: Final = StockOperator()
#: Packed axis, counted from the last -> form.
_PACKED: Final = (WIDTH, HEIGHT, CHANNELS)
_CONVOLUTIONS: Final = (CONVOLUTION, CLAMPED_CONVOLUTION)


def facts_of(node: Node) -> StockOperator:
    """The facts of a call's operator; those that hold for most where it is not in the table."""
    return STOCK.get(node.operator, _UNKNOWN)


def forms_of(node: Node) -> tuple[Form, ...]:
    """The forms of a call's tensors: for reductions by their axes, for convolutions over one axis by the kernel.

    Sums of integers take images by channels, everything else by rows.
    """
    facts = STOCK[node.operator]
    forms = facts.forms
    if node.operator == INT8_ADD:
        return forms if getattr(node.arguments[0], "rank", 4) == 4 else (INT8_ROWS, INT8_ROW)
    if node.operator in _CONVOLUTIONS:
        return ONLY_HEIGHT if _takes_rows(node) else forms
    if not facts.reduces or len(node.arguments) < 2:
        return forms
    rank, axes = getattr(node.arguments[0], "rank", 0), node.arguments[1]
    listed = axes if isinstance(axes, tuple) else (axes,)
    ends = {rank - 1 - axis % max(rank, 1) for axis in listed if isinstance(axis, int)}
    if ends == {0} or not ends:
        return forms
    # A pair excludes one of the last three axes, along which elements are packed.
    return TEXTURES if len(ends) == 1 else tuple(form for end, form in enumerate(_PACKED) if end not in ends)


def _takes_rows(node: Node) -> bool:
    """True if a convolution goes over one axis, of single elements or of each channel separately."""
    shape: tuple[object, ...] = getattr(node.arguments[1], "shape", ())
    return len(shape) == 3 and (shape[2] == 1 or (shape[1] == 1 and node.arguments[8] == shape[0]))


#: Functions on sizes that the runtime computes in each call.
SIZE_FUNCTIONS: Final = frozenset(("sym_size.int", "add", "sub", "mul", "floordiv", "lt", "le", "gt", "ge", "eq"))
