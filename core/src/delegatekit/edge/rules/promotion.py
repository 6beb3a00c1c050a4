"""Mixed element types, made explicit: the operands of an elementwise operator get the dtype that it computes in.

PyTorch converts them silently, with lower priority for tensors of no dimensions and numbers. The runtime's kernels and
accelerators promote differently: after these rules no difference can show.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..builder import EdgeBuilder, Rule, Value
from ..draft import Draft
from .table import Family, RuleTable
from .writing import NARROW_FLOATS, convert, result_dtype

aten = torch.ops.aten

_COMPARISONS = frozenset(f"aten::{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
#: Operators that round a number to a narrow tensor's dtype first (products and quotients do not).
_ROUNDING = _COMPARISONS | {f"aten::{name}" for name in ("add", "sub", "rsub", "fmod", "remainder")}
_EITHER = ("add", "sub", "mul", "div", "fmod", "remainder", "eq", "ne", "lt", "le", "gt", "ge")
#: Operators on two tensors, or on a tensor and a number, that compute in the dtype that the two have in common.
PROMOTING: tuple[OpOverload, ...] = (
    *(getattr(aten, name).Tensor for name in _EITHER),
    *(getattr(aten, name).Scalar for name in _EITHER),
    *(getattr(aten, name).Tensor for name in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    aten.rsub.Scalar,
    aten.div.Tensor_mode,
    aten.div.Scalar_mode,
    aten.floor_divide.default,
    aten.maximum.default,
    aten.minimum.default,
    aten.fmin.default,
    aten.fmax.default,
    aten.atan2.default,
    aten.pow.Tensor_Tensor,
    aten.pow.Tensor_Scalar,
)
_TO_FLOAT = frozenset({aten.div.Tensor, aten.atan2.default})
#: Operators whose rule has another form for a number as first operand.
_NUMBER_FIRST = frozenset({aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor})


def promotion(earlier: RuleTable) -> Family:
    """The rules that convert operands to one dtype, each followed by the operator's rule in the families before."""
    family = Family("promotion")
    for target in PROMOTING:
        inner = earlier.rule(target)
        family.rule(target, replaces=inner is not None)(_promoting(target, inner))
    family.rule(aten.where.self)(_where)
    family.rule(aten.clamp.Tensor)(_clamp)
    return family


def _promoting(target: OpOverload, inner: Rule | None) -> Rule:
    """The rule of an operator with two operands: first they get one dtype, then its other rule applies."""

    def apply(b: EdgeBuilder, call: Draft) -> Value:
        first, second, *rest = call.args
        if isinstance(first, bool | int | float) and isinstance(second, Node) and target not in _NUMBER_FIRST:
            operands: tuple[Any, Any] = (_as_tensor(b, target, first, second), second)
            return b.translate(target, (*operands, *rest), call.kwargs, call.value)
        operands = _promoted(b, target, first, second)
        if operands != (first, second):
            return b.translate(target, (*operands, *rest), call.kwargs, call.value)
        return NotImplemented if inner is None else inner(b, call)

    return apply


def _promoted(b: EdgeBuilder, target: OpOverload, first: Any, second: Any) -> tuple[Any, Any]:
    if isinstance(first, Node) and isinstance(second, Node):
        if b.dtype(first) == b.dtype(second):
            return first, second
        dtype = result_dtype(first, second)
        if target in _TO_FLOAT and not dtype.is_floating_point:
            dtype = torch.get_default_dtype()  # at once, not by way of the narrower integer type
        return convert(b, first, dtype), convert(b, second, dtype)
    if isinstance(first, Node) and isinstance(second, bool | int | float):
        return _with_number(b, target, first, second)
    if isinstance(second, Node) and isinstance(first, bool | int | float):
        x, number = _with_number(b, target, second, first)
        return number, x
    return first, second


def _as_tensor(b: EdgeBuilder, target: OpOverload, number: float, other: Node) -> Node:
    """A number as first operand (5 % x), in the dtype of their result: no kernel takes it as it is."""
    dtype = result_dtype(other, number)
    if target in _TO_FLOAT and not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    made: Node = b.call(aten.full.default, [], number, dtype=dtype)
    return made


def _with_number(b: EdgeBuilder, target: OpOverload, x: Node, number: float) -> tuple[Node, float]:
    dtype = result_dtype(x, number)
    name = target.overloadpacket._qualified_op_name
    if dtype.is_floating_point or name not in _COMPARISONS:
        x = convert(b, x, dtype)
    return x, as_seen(number, dtype) if name in _ROUNDING else number


def as_seen(number: float, dtype: torch.dtype) -> float:
    """The number rounded to a narrow float dtype; for other dtypes, or if the dtype holds it, the number itself."""
    if dtype not in NARROW_FLOATS or isinstance(number, bool):
        return number
    seen: float = torch.tensor(float(number), dtype=dtype).item()
    if seen == number or math.isnan(number):
        return number
    return seen if math.isinf(seen) else type(number)(seen)


def _where(b: EdgeBuilder, call: Draft) -> Value:
    given = condition, first, second = call["condition", "self", "other"]
    dtype = result_dtype(first, second)
    converted = (convert(b, condition, torch.bool), convert(b, first, dtype), convert(b, second, dtype))
    return NotImplemented if converted == given else b.emit(aten.where.self, converted, {}, call.value)


def _clamp(b: EdgeBuilder, call: Draft) -> Value:
    value = call.value
    if value is None:
        return NotImplemented
    given = call["self", "min", "max"]
    converted = tuple(None if item is None else convert(b, item, value.dtype) for item in given)
    return b.emit(aten.clamp.Tensor, converted, {}, value)
