"""The flatbuffer tables of an XNNPACK delegate blob, as ExecuTorch's XNNPACK backend (1.5) reads them.

Slots, numbers and names follow that backend's schema (file identifiers XN00 and XN01).
"""

from __future__ import annotations

from typing import Final

from delegatekit_toolkit import flatbuffer as fb

#: An absent value: no bias, an unused input of a concatenation, an external id of an internal value.
NONE: Final = 0xFFFFFFFF
#: Offset of a constant that is stored in the named data of the program.
NAMED: Final = 0xFFFFFFFFFFFFFFFF

#: Flags of values.
EXTERNAL_INPUT: Final = 1
EXTERNAL_OUTPUT: Final = 2

#: Flags of nodes (XNNPACK's own).
TRANSPOSE_B: Final = 0x1  # BatchMatrixMultiply: (..., N, K); FullyConnected: filter (I, O)
ALIGN_CORNERS: Final = 0x8
KEEP_DIMS: Final = 0x40


class OutputMinMax(fb.Table):
    """Bounds of a node's result."""

    output_min: float = fb.f32()
    output_max: float = fb.f32()


class OneInput(fb.Table):
    """A node with one input."""

    input_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


class TwoInputs(fb.Table):
    """A node with two inputs."""

    input1_id: int = fb.u32()
    input2_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


class FullyConnected(fb.Table):
    """Input, filter and bias (or NONE)."""

    input1_id: int = fb.u32()
    filter_id: int = fb.u32()
    bias_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


class Convolution(fb.Table):
    """All three convolutions; `adjustment` is for the transposed one."""

    padding_top: int = fb.u32()
    padding_right: int = fb.u32()
    padding_bottom: int = fb.u32()
    padding_left: int = fb.u32()
    kernel_height: int = fb.u32()
    kernel_width: int = fb.u32()
    subsampling_height: int = fb.u32()
    subsampling_width: int = fb.u32()
    dilation_height: int = fb.u32()
    dilation_width: int = fb.u32()
    group_input_channels: int = fb.u32()
    group_output_channels: int = fb.u32()
    groups: int = fb.u32()
    adjustment_height: int = fb.u32()
    adjustment_width: int = fb.u32()
    input1_id: int = fb.u32()
    filter_id: int = fb.u32()
    bias_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


class Pooling(fb.Table):
    """Maximum and average pooling."""

    padding_top: int = fb.u32()
    padding_right: int = fb.u32()
    padding_bottom: int = fb.u32()
    padding_left: int = fb.u32()
    pooling_height: int = fb.u32()
    pooling_width: int = fb.u32()
    stride_height: int = fb.u32()
    stride_width: int = fb.u32()
    dilation_height: int = fb.u32()
    dilation_width: int = fb.u32()
    input_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


class Concatenate(fb.Table):
    """Two to five inputs; the fifth was added to the schema later and stands last."""

    axis: int = fb.u32()
    input1_id: int = fb.u32()
    input2_id: int = fb.u32()
    input3_id: int = fb.u32()
    input4_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()
    input5_id: int = fb.u32()


class StaticTranspose(fb.Table):
    """Axis i of the output is axis perm[i] of the input."""

    num_dims: int = fb.u32()
    perm: list[int] | None = fb.vector("u32")
    input_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


class StaticReshape(fb.Table):
    """The new shape; one 0 would be inferred."""

    num_dims: int = fb.u32()
    new_shape: list[int] | None = fb.vector("u32")
    input_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


class StaticSlice(fb.Table):
    """A block of the input."""

    num_dims: int = fb.u32()
    offsets: list[int] | None = fb.vector("u32")
    sizes: list[int] | None = fb.vector("u32")
    input_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


class StaticConstantPad(fb.Table):
    """Elements around each axis, first axis first."""

    pre_paddings: list[int] | None = fb.vector("u32")
    post_paddings: list[int] | None = fb.vector("u32")
    padding_value: float = fb.f32()
    input_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


class StaticResizeBilinear2D(fb.Table):
    """The new height and width."""

    new_height: int = fb.u32()
    new_width: int = fb.u32()
    input_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


class ArgMaxPooling2d(fb.Table):
    """Maxima and their positions. Read, never written."""

    padding_top: int = fb.u32()
    padding_right: int = fb.u32()
    padding_bottom: int = fb.u32()
    padding_left: int = fb.u32()
    pooling_height: int = fb.u32()
    pooling_width: int = fb.u32()
    input_id: int = fb.u32()
    output_value_id: int = fb.u32()
    output_index_id: int = fb.u32()
    flags: int = fb.u32()


class ELU(fb.Table):
    """The factor of the negative side."""

    alpha: float = fb.f32()
    input_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


class LeakyReLU(fb.Table):
    """The slope of the negative side."""

    negative_slope: float = fb.f32()
    input_id: int = fb.u32()
    output_id: int = fb.u32()
    flags: int = fb.u32()


#: The members of the node union in order, each with its fields.
_NODES: Final[tuple[tuple[str, type[fb.Table]], ...]] = (
    ("Add", TwoInputs),
    ("FullyConnected", FullyConnected),
    ("Softmax", OneInput),
    ("Sigmoid", OneInput),
    ("StaticTranspose", StaticTranspose),
    ("Clamp", OneInput),
    ("Conv2d", Convolution),
    ("Div", TwoInputs),
    ("StaticResizeBilinear2D", StaticResizeBilinear2D),
    ("StaticConstantPad", StaticConstantPad),
    ("AvgPooling2d", Pooling),
    ("Minimum", TwoInputs),
    ("DepthwiseConv2d", Convolution),
    ("MaxPooling2d", Pooling),
    ("Multiply", TwoInputs),
    ("Subtract", TwoInputs),
    ("Floor", OneInput),
    ("Convert", OneInput),
    ("GlobalAvgPooling2d", OneInput),
    ("StaticReshape", StaticReshape),
    ("ArgMaxPooling2d", ArgMaxPooling2d),
    ("SquareRoot", OneInput),
    ("Ceiling", OneInput),
    ("Hardswish", OneInput),
    ("LeakyReLU", LeakyReLU),
    ("Maximum", TwoInputs),
    ("Negate", OneInput),
    ("Square", OneInput),
    ("ELU", ELU),
    ("Abs", OneInput),
    ("PReLU", TwoInputs),
    ("Concatenate2", Concatenate),
    ("Concatenate3", Concatenate),
    ("Concatenate4", Concatenate),
    ("StaticSlice", StaticSlice),
    ("ScaledDotProductAttention", OneInput),
    ("BatchMatrixMultiply", TwoInputs),
    ("Concatenate5", Concatenate),
    ("ConvTranspose2d", Convolution),
    ("ReciprocalSquareRoot", OneInput),
    ("Log", OneInput),
    ("Gelu", OneInput),
    ("Tanh", OneInput),
    ("Exp", OneInput),
    ("Sin", OneInput),
    ("Copy", OneInput),
    ("Cos", OneInput),
)

#: Name of a node -> its table. The union distinguishes members by type: each name has a type of its own.
NODE_TABLES: Final[dict[str, type[fb.Table]]] = {name: type(name, (fields,), {}) for name, fields in _NODES}


class XNode(fb.Table):
    """An operator with its handle for profiles."""

    xnode_union: fb.Table | None = fb.union(lambda: tuple(NODE_TABLES.values()))
    debug_handle: int = fb.u32()
    output_min_max: OutputMinMax | None = fb.ref(lambda: OutputMinMax)


class PerChannelQuant(fb.Table):
    """One scale for each index along `channel_dim`."""

    scale: list[float] | None = fb.vector("f32")
    channel_dim: int = fb.i32()
    scale_buffer_idx: int = fb.u32()
    num_scales: int = fb.u32()


class PerTensorQuant(fb.Table):
    """One scale and zero point."""

    scale: float = fb.f32()
    zero_point: int = fb.i32()


class PerTokenDynamicQuant(fb.Table):
    """Scales computed at run time for each row."""

    num_nonbatch_dims: int = fb.i32()


class PerChannelGroupQuant(fb.Table):
    """One scale for each group of elements of a channel."""

    scale: list[float] | None = fb.vector("f32")
    channel_dim: int = fb.i32()
    group_size: int = fb.i32()
    scale_bf16: None = fb.deprecated()
    scale_buffer_idx: int = fb.u32()
    num_scales: int = fb.u32()


class XNNTensorValue(fb.Table):
    """A value: constant_buffer_idx 0 means that it is computed or external."""

    datatype: int = fb.i16()
    num_dims: int = fb.u32()
    dims: list[int] | None = fb.vector("u32")
    constant_buffer_idx: int = fb.u32()
    external_id: int = fb.u32()
    flags: int = fb.u32()
    id_out: int = fb.u32()
    dq_datatype: int = fb.i16()


class XNNQuantizedTensorValue(fb.Table):
    """A value with quantization parameters."""

    tensor_value: XNNTensorValue | None = fb.ref(lambda: XNNTensorValue)
    quant_params: fb.Table | None = fb.union(
        lambda: (PerChannelQuant, PerTensorQuant, PerTokenDynamicQuant, PerChannelGroupQuant)
    )


class XValue(fb.Table):
    """A value of either kind."""

    xvalue_union: fb.Table | None = fb.union(lambda: (XNNTensorValue, XNNQuantizedTensorValue))


class ConstantDataOffset(fb.Table):
    """The location of a constant: in the blob's constant section, or, if it has a key, in the program's named data."""

    offset: int = fb.u64()
    size: int = fb.u64()
    named_key: str | None = fb.string()


class XNNGraph(fb.Table):
    """The root: entry 0 of constant_data stands for "no constant"."""

    version: str | None = fb.string()
    xnodes: list[XNode] | None = fb.tables(lambda: XNode)
    xvalues: list[XValue] | None = fb.tables(lambda: XValue)
    num_externs: int = fb.u32()
    input_ids: list[int] | None = fb.vector("u32")
    output_ids: list[int] | None = fb.vector("u32")
    constant_buffer: None = fb.deprecated()
    mem_buffer_sizes: None = fb.deprecated()
    constant_data: list[ConstantDataOffset] | None = fb.tables(lambda: ConstantDataOffset)
