"""Mixed element types, written out: the operands of an elementwise operator get the dtype that it computes in.

PyTorch converts them silently, and lets tensors of no dimensions and numbers count less. The runtime's kernels and
accelerators have other habits; behind these rules there is nothing left that they could differ in.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..builder import Builder, Rule, Value
from .general import RULES, aten, convert, result_dtype, rule

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
#: Operators whose rule has another spelling for a number in front of a tensor.
_NUMBER_FIRST = frozenset({aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor})
NARROW_FLOATS = frozenset({torch.float16, torch.bfloat16})


def _promoting(target: OpOverload) -> Rule:
    """The rule of an operator with two operands: first they get one dtype, then comes its other rule."""
    inner = RULES.get(target)

    def apply(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        first, second, *rest = args
        if isinstance(first, bool | int | float) and isinstance(second, Node) and target not in _NUMBER_FIRST:
            return b.translate(target, (_as_tensor(b, target, first, second), second, *rest), kwargs, value)
        operands = _promoted(b, target, first, second)
        if operands != (first, second):
            return b.translate(target, (*operands, *rest), kwargs, value)
        return NotImplemented if inner is None else inner(b, args, kwargs, value)

    return apply


def _promoted(b: Builder, target: OpOverload, first: Any, second: Any) -> tuple[Any, Any]:
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


def _as_tensor(b: Builder, target: OpOverload, number: float, other: Node) -> Node:
    """A number in front of a tensor (5 % x), in the dtype of their result: no kernel takes it as it is."""
    dtype = result_dtype(other, number)
    if target in _TO_FLOAT and not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    made: Node = b.call(aten.full.default, [], number, dtype=dtype)
    return made


def _with_number(b: Builder, target: OpOverload, x: Node, number: float) -> tuple[Node, float]:
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


for _target in PROMOTING:
    RULES[_target] = _promoting(_target)


@rule(aten.where.self)
def _where(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    condition, first, second = args
    dtype = result_dtype(first, second)
    converted = (convert(b, condition, torch.bool), convert(b, first, dtype), convert(b, second, dtype))
    return NotImplemented if converted == args else b.emit(aten.where.self, converted, {}, value)


@rule(aten.clamp.Tensor)
def _clamp(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    if value is None:
        return NotImplemented
    bounds = [*args[1:], *(kwargs.get(name) for name in ("min", "max")[len(args) - 1 :])]
    converted = [None if item is None else convert(b, item, value.dtype) for item in (args[0], *bounds)]
    return b.emit(aten.clamp.Tensor, tuple(converted), {}, value)
