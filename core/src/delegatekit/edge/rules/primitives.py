"""PyTorch's primitives, used in its reference implementations, as the equivalent operators."""

from __future__ import annotations

from typing import Final

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..builder import EdgeBuilder, Rule, Value
from ..draft import Draft
from .table import Family

aten = torch.ops.aten
prims = torch.ops.prims

PRIMITIVES = Family("primitives")

#: Primitives with an operator of the same name.
_SAME: Final = (
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp expm1 floor log log10 log1p log2 neg "
    "reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc isfinite maximum minimum atan2"
)
#: The same for those whose operator has an overload for two tensors.
_PAIRS: Final = "add sub mul eq ne lt le gt ge fmod remainder bitwise_and bitwise_or bitwise_xor"


def _renamed(target: OpOverload) -> Rule:
    def apply(b: EdgeBuilder, call: Draft) -> Value:
        return b.translate(target, call.args, call.kwargs, call.value)

    return apply


for _name in _SAME.split():
    if hasattr(prims, _name) and hasattr(getattr(aten, _name), "default"):
        PRIMITIVES.rule(getattr(prims, _name).default)(_renamed(getattr(aten, _name).default))
for _name in _PAIRS.split():
    if hasattr(prims, _name):
        PRIMITIVES.rule(getattr(prims, _name).default)(_renamed(getattr(aten, _name).Tensor))
PRIMITIVES.rule(prims.pow.default)(_renamed(aten.pow.Tensor_Tensor))
PRIMITIVES.rule(prims.where.default)(_renamed(aten.where.self))


@PRIMITIVES.rule(prims.div.default)
def _division(b: EdgeBuilder, call: Draft) -> Value:
    if any(isinstance(item, Node) and not b.dtype(item).is_floating_point for item in call.args):
        return b.translate(aten.div.Tensor_mode, call.args, {"rounding_mode": "trunc"}, call.value)
    return b.translate(aten.div.Tensor, call.args, {}, call.value)
