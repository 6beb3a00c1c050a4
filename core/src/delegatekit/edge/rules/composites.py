"""Operators with an obvious spelling in others: views written as aliases, shifts, PyTorch's primitives."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..builder import Builder, Rule, Value
from ..sizes import is_static, same
from .general import CHECKS, RULES, aten, convert, result_dtype, rule

# -- views -----------------------------------------------------------------------------------------------------------


def _copying(copy: OpOverload) -> Rule:
    """The rule of a view: the operator that makes a copy of what it would show."""

    def apply(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        return b.emit(copy, args, kwargs, None if value is None else b.fake_like(value))

    return apply


RULES[aten.diagonal.default] = _copying(aten.diagonal_copy.default)
RULES[aten.unfold.default] = _copying(aten.unfold_copy.default)
RULES[aten.view.dtype] = _copying(aten.view_copy.dtype)


def _check_nansum(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> None:
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    if dims is not None and len(dims) == 0 and b.shape(args[0]):
        b.refuse("dim=[] is all dimensions for PyTorch's kernel and none for its exporter", hint="write dim=None")


def _check_index(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> None:
    # PyTorch forgets to broadcast a last index of rank 0, and so all sizes from here on are wrong in the program.
    indices = [index.meta["val"] for index in args[1] if isinstance(index, Node)]
    if value is not None and indices and not any(index.dtype in (torch.bool, torch.uint8) for index in indices):
        rank = len(b.shape(args[0])) - len(indices) + max(index.dim() for index in indices)
        if value.dim() != rank:
            b.refuse(
                f"PyTorch's exporter gives it {value.dim()} dimensions; in truth it has {rank}",
                hint="give the index of rank 0 a dimension: index[None]",
            )


CHECKS[aten.nansum.default] = _check_nansum
CHECKS[aten.index.Tensor] = CHECKS[aten._unsafe_index.Tensor] = _check_index


def _stays_within(count: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether as_strided looks at the first `count` elements only, in every call."""
    sizes, strides = args[1], args[2]
    offset = args[3] if len(args) > 3 else kwargs.get("storage_offset")
    if not is_static([*sizes, *strides, offset or 0]):
        return False
    last: int = (offset or 0) + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return last < count


@rule(aten.as_strided.default)
def _as_strided(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    # It looks at the memory behind the tensor. That is the tensor itself where it lies there in order and is all of the
    # memory, or where nothing else is looked at: of an input, the exporter may leave open how large its memory is.
    source = b.origin.args[0] if b.origin is not None and b.origin.target is aten.as_strided.default else None
    base = source.meta.get("val") if isinstance(source, Node) else None
    whole = (
        isinstance(base, torch.Tensor)
        and is_static(base.shape)
        and base.is_contiguous()
        and same(base.storage_offset(), 0)
        and (
            _stays_within(base.numel(), args, kwargs)
            or same(base.untyped_storage().nbytes(), base.numel() * base.element_size())
        )
    )
    if not whole:
        b.refuse("looks at the memory behind a tensor that is not contiguous", hint="call contiguous() before it")
    return b.emit(aten.as_strided_copy.default, args, kwargs, None if value is None else b.fake_like(value))


@rule(aten.cat.default)
def _cat(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    parts = [part for part in args[0] if not any(same(size, 0) for size in b.shape(part))]
    if value is None or not parts or len(parts) == len(args[0]):
        return NotImplemented
    if len(parts) == 1:
        return convert(b, parts[0], value.dtype)
    # Those left out may have decided the dtype.
    parts = [convert(b, part, value.dtype) for part in parts]
    return b.emit(aten.cat.default, (parts, *args[1:]), kwargs, value)


# -- bits ------------------------------------------------------------------------------------------------------------


def _shift(*, left: bool) -> Rule:
    """The rule of a shift. By fewer than 0 places or by more than the type has, PyTorch shifts everything out."""
    form = aten.bitwise_left_shift.Tensor if left else aten.bitwise_right_shift.Tensor

    def apply(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        x, count = args
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
        # What kernels make of other counts differs.
        last = b.constant(torch.tensor(places - 1, dtype=dtype))
        within = b.call(aten.eq.Tensor, b.call(aten.clamp.default, count, 0, places - 1), count)
        shifted = b.emit(form, (x, b.call(aten.where.self, within, count, last)), {})
        return b.call(aten.where.self, within, shifted, b.constant(torch.tensor(0, dtype=dtype))) if left else shifted

    return apply


for _name in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"):
    RULES[getattr(aten.bitwise_left_shift, _name)] = _shift(left=True)
    RULES[getattr(aten.bitwise_right_shift, _name)] = _shift(left=False)
for _name in ("Tensor", "Scalar"):
    RULES[getattr(aten.__lshift__, _name)] = _shift(left=True)
    RULES[getattr(aten.__rshift__, _name)] = _shift(left=False)


# -- PyTorch's primitives, which its references are written in --------------------------------------------------------

_PRIMITIVES = (
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp expm1 floor log log10 log1p log2 neg "
    "reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc isfinite maximum minimum atan2"
)
_PRIMITIVE_PAIRS = "add sub mul eq ne lt le gt ge fmod remainder bitwise_and bitwise_or bitwise_xor"


def _renamed(target: OpOverload) -> Rule:
    def apply(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        return b.translate(target, args, kwargs, value)

    return apply


def _rename_primitives() -> None:
    prims = torch.ops.prims
    for name in _PRIMITIVES.split():
        if hasattr(prims, name) and hasattr(getattr(aten, name), "default"):
            RULES[getattr(prims, name).default] = _renamed(getattr(aten, name).default)
    for name in _PRIMITIVE_PAIRS.split():
        if hasattr(prims, name):
            RULES[getattr(prims, name).default] = _renamed(getattr(aten, name).Tensor)
    RULES[prims.shift_left.default] = RULES[aten.bitwise_left_shift.Scalar_Tensor]
    RULES[prims.shift_right_arithmetic.default] = RULES[aten.bitwise_right_shift.Scalar_Tensor]
    RULES[prims.pow.default] = _renamed(aten.pow.Tensor_Tensor)
    RULES[prims.where.default] = _renamed(aten.where.self)


_rename_primitives()


@rule(torch.ops.prims.div.default)
def _primitive_division(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    if any(isinstance(item, Node) and not b.dtype(item).is_floating_point for item in args):
        return b.translate(aten.div.Tensor_mode, args, {"rounding_mode": "trunc"}, value)
    return b.translate(aten.div.Tensor, args, {}, value)
