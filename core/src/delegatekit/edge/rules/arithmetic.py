"""Arithmetic: scalar operands, `alpha`, bounds, shifts, and full reductions."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..builder import EdgeBuilder, Rule, Value
from ..draft import Draft
from ..sizes import same_shape
from .table import Family
from .writing import convert, result_dtype

aten = torch.ops.aten

ARITHMETIC = Family("arithmetic")

# -- numbers as operands ---------------------------------------------------------------------------------------------


def _with_scalar_form(scalar_form: OpOverload) -> Rule:
    """The rule of an operator whose second operand may be a number: it then becomes the Scalar overload."""

    def apply(b: EdgeBuilder, call: Draft) -> Value:
        x, other = call["self", "other"]
        if not isinstance(x, Node) and scalar_form is aten.mul.Scalar:
            return b.emit(scalar_form, (other, x), call.kwargs, call.value)
        if isinstance(other, Node):
            return NotImplemented
        return b.emit(scalar_form, call.args, call.kwargs, call.value)

    return apply


for _name in ("mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "fmod", "bitwise_and", "bitwise_or"):
    _packet = getattr(aten, _name)
    ARITHMETIC.rule(_packet.Tensor)(_with_scalar_form(_packet.Scalar))
ARITHMETIC.rule(aten.div.Tensor_mode)(_with_scalar_form(aten.div.Scalar_mode))


@ARITHMETIC.rule(aten.remainder.Tensor, aten.remainder.Scalar)
def _remainder(b: EdgeBuilder, call: Draft) -> Value:
    x, y = call["self", "other"]
    dtype = result_dtype(x, y)
    if not dtype.is_floating_point and isinstance(x, Node):
        # ExecuTorch 1.5 computes the remainder of integers with the wrong sign; its division rounds as it should.
        x = convert(b, x, dtype)
        quotient = b.call(aten.div.Tensor_mode, x, y, rounding_mode="floor")
        return b.call(aten.sub.Tensor, x, b.call(aten.mul.Tensor, quotient, y), value=call.value)
    return _FLOAT_REMAINDER(b, call)


_FLOAT_REMAINDER = _with_scalar_form(aten.remainder.Scalar)


def _with_alpha(tensor_form: OpOverload, scalar_form: OpOverload) -> Rule:
    """The rule of add and sub: a scalar operand absorbs alpha."""

    def apply(b: EdgeBuilder, call: Draft) -> Value:
        x, other, alpha = call["self", "other", "alpha"]
        return combined(b, x, other, alpha, call.value)

    def combined(b: EdgeBuilder, x: Any, other: Any, alpha: Any, value: Any) -> Value:
        if not isinstance(x, Node):
            # A number in front: 1 + x, 1 - x.
            if tensor_form is aten.add.Tensor and alpha == 1:
                return combined(b, other, x, 1, value)
            if tensor_form is aten.sub.Tensor:
                return b.emit(aten.rsub.Scalar, (other, x, *([alpha] if alpha != 1 else [])), {}, value)
            return NotImplemented
        if isinstance(other, Node):
            if alpha != 1 and not same_shape(b.shape(x), b.shape(other)):
                # The runtime's kernel scales the wrong operand if the first has one element.
                other, alpha = b.call(aten.mul.Tensor, other, alpha), 1
            return b.emit(tensor_form, (x, other), {} if alpha == 1 else {"alpha": alpha}, value)
        number = other if alpha == 1 else other * alpha  # True * 1 would be 1, which turns bools into integers
        # The runtime's kernel refuses a number that changes the dtype (an integer tensor + 0.5).
        return b.emit(scalar_form, (convert(b, x, result_dtype(x, number)), number), {}, value)

    return apply


ARITHMETIC.rule(aten.add.Tensor, aten.add.Scalar)(_with_alpha(aten.add.Tensor, aten.add.Scalar))
ARITHMETIC.rule(aten.sub.Tensor, aten.sub.Scalar)(_with_alpha(aten.sub.Tensor, aten.sub.Scalar))


@ARITHMETIC.rule(aten.clamp_min.default)
def _clamp_min(b: EdgeBuilder, call: Draft) -> Value:
    return b.emit(aten.clamp.default, (call["self"], call["min"], None), {}, call.value)


@ARITHMETIC.rule(aten.clamp_max.default)
def _clamp_max(b: EdgeBuilder, call: Draft) -> Value:
    return b.emit(aten.clamp.default, (call["self"], None, call["max"]), {}, call.value)


@ARITHMETIC.rule(aten.relu6.default)
def _relu6(b: EdgeBuilder, call: Draft) -> Value:
    return b.emit(aten.hardtanh.default, (call["self"], 0.0, 6.0), {}, call.value)


# -- bits ------------------------------------------------------------------------------------------------------------


def _shift(*, left: bool) -> Rule:
    """The rule of a shift. By fewer than 0 places or by more than the type has, PyTorch shifts everything out."""
    form = aten.bitwise_left_shift.Tensor if left else aten.bitwise_right_shift.Tensor

    def apply(b: EdgeBuilder, call: Draft) -> Value:
        x, count = call["self", "other"]
        return shifted(b, x, count, call.value)

    def shifted(b: EdgeBuilder, x: Any, count: Any, value: Any) -> Value:
        if not isinstance(count, Node):
            count = b.constant(torch.tensor(count, dtype=b.dtype(x)))
        if not isinstance(x, Node):
            x = b.constant(torch.tensor(x, dtype=b.dtype(count)))
        dtype = result_dtype(x, count)
        x, count = convert(b, x, dtype), convert(b, count, dtype)
        places = torch.iinfo(dtype).bits
        known = b.constants.get(count)
        if known is not None and bool(((known >= 0) & (known < places)).all()):
            return b.emit(form, (x, count), {}, value)
        # Kernels differ for other counts.
        last = b.constant(torch.tensor(places - 1, dtype=dtype))
        within = b.call(aten.eq.Tensor, b.call(aten.clamp.default, count, 0, places - 1), count)
        inner = b.emit(form, (x, b.call(aten.where.self, within, count, last)), {})
        return b.call(aten.where.self, within, inner, b.constant(torch.tensor(0, dtype=dtype))) if left else inner

    return apply


ARITHMETIC.rule(
    *(getattr(aten.bitwise_left_shift, _name) for _name in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")),
    *(getattr(aten.__lshift__, _name) for _name in ("Tensor", "Scalar")),
    torch.ops.prims.shift_left.default,
)(_shift(left=True))
ARITHMETIC.rule(
    *(getattr(aten.bitwise_right_shift, _name) for _name in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")),
    *(getattr(aten.__rshift__, _name) for _name in ("Tensor", "Scalar")),
    torch.ops.prims.shift_right_arithmetic.default,
)(_shift(left=False))


# -- reductions ------------------------------------------------------------------------------------------------------


@ARITHMETIC.rule(aten.mean.default)
def _mean(b: EdgeBuilder, call: Draft) -> Value:
    return b.emit(aten.mean.dim, (call["self"], _all_dims(b, call["self"]), False), call.kwargs, call.value)


@ARITHMETIC.rule(aten.sum.default)
def _sum(b: EdgeBuilder, call: Draft) -> Value:
    return b.emit(aten.sum.dim_IntList, (call["self"], _all_dims(b, call["self"]), False), call.kwargs, call.value)


def _all_dims(b: EdgeBuilder, x: Node) -> list[int]:
    return list(range(len(b.shape(x))))


@ARITHMETIC.rule(aten.var.dim, aten.var.default)
def _variance(b: EdgeBuilder, call: Draft) -> Value:
    # var(x, dims, unbiased, keepdim), or var(x, unbiased) over everything
    settings = {"correction": int(call["unbiased"]), "keepdim": call.get("keepdim", False)}
    return b.emit(aten.var.correction, (call["self"], call.get("dim")), settings, call.value)


@ARITHMETIC.check(aten.nansum.default)
def _check_nansum(b: EdgeBuilder, call: Draft) -> None:
    dims = call["dim"]
    if dims is not None and len(dims) == 0 and b.shape(call["self"]):
        b.refuse("dim=[] is all dimensions for PyTorch's kernel and none for its exporter", hint="write dim=None")
