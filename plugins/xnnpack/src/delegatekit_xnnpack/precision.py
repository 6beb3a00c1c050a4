"""In which type an operator of a half-precision program computes: its own, or float32 between two conversions.

PyTorch computes every operator on float16 and bfloat16 in float32 and rounds the result once. An operator that is one
node of XNNPACK does the same, or nearly; one that is several nodes would round between them, and may overflow there.

What the nodes do with float16, measured over all 65536 numbers in ExecuTorch 1.5.1 on x86 (errors in units in the last
place; with AVX512-FP16, with F16C only, and without either, where the runtime computes the whole graph in float32):

======================================== ==============================================================================
exact, or rounded once                   Abs Add Ceiling Copy Div Floor GlobalAvgPooling2d Maximum MaxPooling2d Minimum
                                         Multiply Negate PReLU Square Subtract, and all that move elements
up to 2                                  ELU Hardswish LeakyReLU StaticResizeBilinear2D
right, but NaN becomes the lower bound   Clamp, and clamps inside other nodes. Those of float32 keep NaN, so a clamp is
                                         one of float32 unless it moves into the node before it (see `passes`)
sums rounded at every step with          BatchMatrixMultiply Conv2d FullyConnected: 4096 ones add up to 2048. With F16C
AVX512-FP16                              only, they are summed in float32. (Arm has float16 sums, too: not measured.)
sums rounded at every step everywhere    AvgPooling2d DepthwiseConv2d (of at most so many terms as the window has)
too inexact or wrong for some numbers    Cos Exp Gelu Log Sigmoid Sin Softmax SquareRoot Tanh (exp up to 10, and inf for
                                         exp(10.75); cos(-57920) is 18448; tanh(4) is 1.001)
wrong without F16C                       StaticConstantPad, but for zeros
refused                                  ConvTranspose2d; results of another type than the inputs
======================================== ==============================================================================

Weights of float16 beside activations of float32 are right to float32's rounding in FullyConnected and the three
convolutions, as constants (a computed one ends the process). Of bfloat16, nodes that move elements, Convert, arithmetic
and functions are right, FullyConnected is with a constant weight and a bias of float32; convolutions, pools, softmax
and products of computed matrices are refused. So bfloat16 computes in float32 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from delegatekit_toolkit.sizes import dynamic_count, largest

from .arguments import argument, rank_of, shape_of, tensor_operands
from .graph import DataType

if TYPE_CHECKING:
    from torch.fx import Node

    from delegatekit_api import ProgramView

#: PyTorch's floating-point types that XNNPACK has.
FLOATS: Final = {
    torch.float32: DataType.FLOAT32,
    torch.float16: DataType.FLOAT16,
    torch.bfloat16: DataType.BFLOAT16,
}
#: XNNPACK's floating-point types, as PyTorch's.
TORCH_FLOATS: Final = {datatype: dtype for dtype, datatype in FLOATS.items()}

#: Sums that are rounded to float16 at every step have at most so many terms; longer ones are added up in float32.
#: Of equal terms, those behind the 2048th are lost.
TERM_LIMIT: Final = 1024


def computes_in(node: Node, program: ProgramView, *, half: str = "float16") -> DataType:
    """The type in which a node computes; its operands are converted to it, and its result from it.

    `half` is the option `half_precision`: "float32" for all arithmetic in float32.
    """
    kind = FLOATS.get(node.meta["val"].dtype, DataType.FLOAT32)
    if kind is DataType.FLOAT32:
        return kind
    name = str(node.target)
    moves = _MOVES.get(name)
    if moves is not None and moves(node, program):
        return kind
    if kind is DataType.BFLOAT16 or half != "float16":
        return DataType.FLOAT32
    rule = _FLOAT16.get(name)
    return kind if rule is not None and rule(node, program) else DataType.FLOAT32


def fits_float16(number: float) -> bool:
    """Whether a number is one of float16 (NaN and infinities are)."""
    return not math.isfinite(number) or float(torch.tensor(number, dtype=torch.float64).half()) == number


# -- rules: whether an operator computes in float16 as well as PyTorch does --------------------------------------------


#: Whether a node may compute in its own type.
_Rule = Callable[["Node", "ProgramView"], bool]


def _always(node: Node, program: ProgramView) -> bool:
    return True


def _plain_operands(node: Node, program: ProgramView) -> bool:
    """Numbers beside the tensors are numbers of float16, and nothing is scaled before it is added."""
    names = {parameter.name for parameter in node.target._schema.arguments}  # type: ignore[union-attr]
    if "alpha" in names and argument(node, "alpha") != 1:
        return False
    other = argument(node, "other")
    if isinstance(other, int | float) and not fits_float16(other):
        return False
    return all(_is_float16(operand, program) for operand in tensor_operands(node))


def _is_float16(operand: Node, program: ProgramView) -> bool:
    """Whether an operand is float16, or a constant number that float16 has."""
    if operand.meta["val"].dtype is torch.float16:
        return True
    number = program.constant(operand)
    return number is not None and number.numel() == 1 and fits_float16(float(number))


def _normal(*names: str) -> _Rule:
    """Attributes are 0 or normal numbers of float16."""
    finfo = torch.finfo(torch.float16)

    def rule(node: Node, program: ProgramView) -> bool:
        numbers = (abs(argument(node, name)) for name in names)
        return all(number == 0 or finfo.tiny <= number <= finfo.max for number in numbers)

    return rule


def _elu(node: Node, program: ProgramView) -> bool:
    return argument(node, "scale") == 1 and _normal("alpha")(node, program)


def _power(node: Node, program: ProgramView) -> bool:
    return argument(node, "exponent") in (1, 2)


def _short_rows(node: Node, program: ProgramView) -> bool:
    """Each element of a matrix product is a short sum."""
    left = next(argument(node, name) for name in ("input", "mat1", "batch1", "self") if _has(node, name))
    return largest(shape_of(left)[-1]) <= TERM_LIMIT


def _has(node: Node, name: str) -> bool:
    return any(parameter.name == name for parameter in node.target._schema.arguments)  # type: ignore[union-attr]


def _short_windows(node: Node, program: ProgramView) -> bool:
    """Each element of a convolution is a short sum."""
    _, *window = shape_of(argument(node, "weight"))
    return not argument(node, "transposed") and math.prod(map(largest, window)) <= TERM_LIMIT


def _regroups_nothing(node: Node, program: ProgramView) -> bool:
    """No reshape that has to be made of averages and products; float16 has nodes for these, bfloat16 has not."""
    half: Any = node.meta["val"].dtype
    return half is torch.float16 or all(
        dynamic_count(shape_of(item)) < 2 for item in (*tensor_operands(node), node) if rank_of(item)
    )


def _pads_with_zero(node: Node, program: ProgramView) -> bool:
    """On processors without float16, the runtime makes float32 of all values, but not of what is filled in."""
    return bool(argument(node, "value") == 0)


def _repeats_by_product(node: Node, program: ProgramView) -> bool:
    """Where several sizes change, pixels are repeated by a transposed convolution instead."""
    return dynamic_count(shape_of(argument(node, "input"))) < 2


#: Operators that move or choose elements.
_MOVES: Final[dict[str, _Rule]] = {
    **{
        f"aten.{name}": _regroups_nothing
        for name in (
            *("view_copy.default", "unsqueeze_copy.default", "squeeze_copy.dims", "permute_copy.default"),
            *("slice_copy.Tensor", "select_copy.int", "index_select.default", "cat.default"),
            *("pixel_shuffle.default", "_to_copy.default"),
        )
    },
    "aten.constant_pad_nd.default": _pads_with_zero,
}

#: Operators that may compute in float16, and on what condition.
_FLOAT16: Final[dict[str, _Rule]] = {
    **{
        f"aten.{name}.default": _always
        for name in (
            *("abs", "ceil", "floor", "neg", "square", "reciprocal"),
            *("hardswish", "prelu"),
            *("expand_copy", "repeat", "max_pool1d", "max_pool2d", "amax", "amin"),
        )
    },
    **{
        f"aten.{name}": _plain_operands
        for name in (
            *("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar"),
            *("mul.Tensor", "mul.Scalar", "div.Tensor", "div.Scalar", "maximum.default", "minimum.default"),
        )
    },
    "aten.pow.Tensor_Scalar": _power,
    "aten.leaky_relu.default": _normal("negative_slope"),
    "aten.elu.default": _elu,
    **{f"aten.{name}.default": _short_rows for name in ("linear", "mm", "bmm", "matmul", "addmm", "baddbmm")},
    "aten.convolution.default": _short_windows,
    "aten.upsample_bilinear2d.vec": _always,
    "aten.upsample_nearest2d.vec": _repeats_by_product,
}
