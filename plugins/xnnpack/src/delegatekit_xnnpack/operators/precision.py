"""The type in which an operator of a half-precision program computes: its own, or float32 between two conversions.

PyTorch computes every operator on float16 and bfloat16 in float32 and rounds the result once. An operator that is one
XNNPACK node does the same, or nearly; one of several nodes would round between them, and may overflow there.

Behavior of the nodes in float16, measured over all 65536 numbers in ExecuTorch 1.5.1 on x86 (errors in units in the
last place; with AVX512-FP16, with F16C only, and without either, where the runtime computes the whole graph in
float32):

======================================== ==============================================================================
exact, or rounded once                   Abs Add Ceiling Copy Div Floor GlobalAvgPooling2d Maximum MaxPooling2d Minimum
                                         Multiply Negate PReLU Square Subtract, and all that move elements
up to 2                                  ELU Hardswish LeakyReLU StaticResizeBilinear2D
right, but NaN becomes the lower bound   Clamp, and clamps inside other nodes. Those of float32 keep NaN, so a clamp is
                                         one of float32 unless it moves into the node before it (see `passes`)
sums rounded at every step with          BatchMatrixMultiply Conv2d FullyConnected: 4096 ones add up to 2048. With F16C
AVX512-FP16                              only, they are summed in float32. (Arm has float16 sums, too: not measured.)
sums rounded at every step everywhere    AvgPooling2d DepthwiseConv2d (of as many terms as the window has)
too inexact or wrong for some numbers    Cos Exp Gelu Log Sigmoid Sin Softmax SquareRoot Tanh (exp up to 10, and inf for
                                         exp(10.75); cos(-57920) is 18448; tanh(4) is 1.001)
wrong without F16C                       StaticConstantPad, except with zeros
refused                                  ConvTranspose2d; results of another type than the inputs
======================================== ==============================================================================

Weights of float16 with activations of float32 are accurate to float32's rounding in FullyConnected and the three
convolutions, as constants (a computed one crashes the process). With bfloat16, nodes that move elements, Convert,
arithmetic and functions are correct, as is FullyConnected with a constant weight and a bias of float32; convolutions,
pools, softmax and products of computed matrices are refused. So bfloat16 computes in float32 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.sizes import dynamic_count, largest
from delegatekit_toolkit.support import Row
from delegatekit_toolkit.symbols import shape_of

from ..ir.formats import FLOATS
from ..ir.types import DataType

#: Sums that are rounded to float16 at every step have at most this many terms; longer ones are computed in float32. Of
#: equal terms, those after the 2048th are lost.
TERM_LIMIT: Final = 1024

#: True if a call may compute in its own type. A row has one as the fact `float16` (it computes, in float16 as
#: accurately as PyTorch does) or `own_type` (it moves or selects elements, in any type).
PrecisionRule: TypeAlias = Callable[[Call], bool]


def computes_in(call: Call, row: Row[Any], *, half: str) -> DataType:
    """The type in which a call of this row computes; its operands are converted to it, and its result from it.

    `half` is the option `half_precision`: "float32" for all arithmetic in float32.
    """
    kind = FLOATS.get(call.node.meta["val"].dtype, DataType.FLOAT32)
    if kind is DataType.FLOAT32:
        return kind
    moves: PrecisionRule | None = row.facts.get("own_type")
    if moves is not None and moves(call):
        return kind
    if kind is DataType.BFLOAT16 or half != "float16":
        return DataType.FLOAT32
    rule: PrecisionRule | None = row.facts.get("float16")
    return kind if rule is not None and rule(call) else DataType.FLOAT32


def fits_float16(number: float) -> bool:
    """True if a number is representable in float16 (NaN and infinities are)."""
    return not math.isfinite(number) or float(torch.tensor(float(number)).half()) == number


# -- rules that several families share ---------------------------------------------------------------------------------


def always(call: Call) -> bool:
    """In every call."""
    return True


def plain_operands(call: Call) -> bool:
    """Numbers combined with the tensors are float16 numbers, and nothing is scaled before it is added."""
    if call.get("alpha", 1) != 1:
        return False
    other = call["other"]
    if isinstance(other, int | float) and not fits_float16(other):
        return False
    return all(map(_is_float16, call.operands))


def _is_float16(operand: Operand) -> bool:
    """True if an operand is float16, or a constant number that float16 represents."""
    if operand.dtype is torch.float16:
        return True
    number = operand.constant
    return number is not None and number.numel() == 1 and fits_float16(float(number))


def normal_float16(*names: str) -> PrecisionRule:
    """Attributes are 0 or normal float16 numbers."""
    finfo = torch.finfo(torch.float16)

    def rule(call: Call) -> bool:
        numbers = (abs(call[name]) for name in names)
        return all(number == 0 or finfo.tiny <= number <= finfo.max for number in numbers)

    return rule


def short_rows(call: Call) -> bool:
    """Each element of a matrix product is a short sum."""
    left = next(call[name] for name in ("input", "mat1", "self") if call.has(name))
    return largest(shape_of(left)[-1]) <= TERM_LIMIT


def regroups_nothing(call: Call) -> bool:
    """No reshape that must be composed of averages and products; float16 has nodes for these, bfloat16 does not."""
    return call.result.dtype is torch.float16 or all(dynamic_count(shape_of(item)) < 2 for item in call.tensors)
