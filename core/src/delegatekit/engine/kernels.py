"""Binds a kernel call of the file to the function that computes it: ATen's out-variants, and the runtime's own few."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final

import torch
from torch._ops import OpOverload

from delegatekit_api import FormatError

from ..pte.dtypes import torch_dtype

#: Kernels whose result is a number -> Python's function of the same meaning.
_SCALAR_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "executorch_prim::add.Scalar": operator.add,
    "executorch_prim::sub.Scalar": operator.sub,
    "executorch_prim::mul.Scalar": operator.mul,
    "executorch_prim::floordiv.Scalar": operator.floordiv,
    "executorch_prim::floordiv.int": operator.floordiv,
    "executorch_prim::truediv.Scalar": operator.truediv,
    "executorch_prim::mod.Scalar": operator.mod,
    "executorch_prim::mod.int": operator.mod,
    "executorch_prim::neg.Scalar": operator.neg,
    "executorch_prim::eq.Scalar": operator.eq,
    "executorch_prim::gt.Scalar": operator.gt,
    "executorch_prim::ge.Scalar": operator.ge,
    "executorch_prim::lt.Scalar": operator.lt,
    "executorch_prim::le.Scalar": operator.le,
    "executorch_prim::sym_not.Scalar": operator.not_,
    "executorch_prim::sym_max.Scalar": max,
    "executorch_prim::sym_min.Scalar": min,
    "executorch_prim::sym_float.Scalar": float,
    "executorch_prim::sym_int.Scalar": int,
    "executorch_prim::ceil.Scalar": math.ceil,
    "executorch_prim::round.Scalar": round,
    "executorch_prim::trunc.Scalar": math.trunc,
    "executorch_prim::sym_ite.Scalar": lambda condition, yes, no: yes if condition else no,
    "aten::sym_size.int": lambda tensor, axis: tensor.shape[axis],
    "aten::sym_numel": lambda tensor: tensor.numel(),
    "aten::_local_scalar_dense": lambda tensor: tensor.item(),
}
#: Kernels that copy their first argument into the out argument at this position, whatever its dtype and layout.
_COPIES: Final = {
    "executorch_prim::et_view.default": 2,
    "dim_order_ops::_to_dim_order_copy.out": 3,
    "dim_order_ops::_clone_dim_order.out": 3,
    "et_copy::_h2d_copy.out": 1,
    "et_copy::_d2h_copy.out": 1,
}
_MEMORY_FORMATS: Final = {0: torch.contiguous_format, 1: torch.preserve_format}


def returns_scalar(name: str) -> bool:
    """Whether a kernel's result is a number, which replaces the value of the call's last argument."""
    return name in _SCALAR_FUNCTIONS


def scalar_function(name: str) -> Callable[..., Any]:
    """What such a kernel computes from the call's other arguments."""
    return _SCALAR_FUNCTIONS[name]


def bind(name: str, arguments: Sequence[Any]) -> Callable[[], Any]:
    """The call of kernel `name` on values (tensors, numbers, lists) that stay the same objects over all calls.

    Raises FormatError for a kernel that this engine lacks, and for a copy between sizes that differ.
    """
    if name in _COPIES:
        return _copy(name, arguments[0], arguments[_COPIES[name]])
    if name == "executorch_prim::et_copy_index.tensor":
        target, source, index = arguments
        return partial(target[index].copy_, source)
    if name == "dim_order_ops::_empty_dim_order.out":
        return lambda: None  # any content will do
    positional, keywords = _arranged(name, arguments)
    return partial(_target(name)._op, *positional, **keywords)


def _copy(name: str, source: torch.Tensor, target: torch.Tensor) -> Callable[[], Any]:
    if name == "executorch_prim::et_view.default" and source.numel() == target.numel() and source.is_contiguous():
        source = source.view(target.shape)
    if source.shape != target.shape:
        raise FormatError(f"{name} copies {tuple(source.shape)} into {tuple(target.shape)}")
    return partial(target.copy_, source)


@cache
def _target(name: str) -> OpOverload:
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    target = getattr(getattr(getattr(torch.ops, namespace, None), packet, None), overload or "default", None)
    if not isinstance(target, OpOverload):
        raise FormatError(f"the Python engine has no kernel {name}", hint="run the file in the ExecuTorch runtime")
    return target


@cache
def _parameters(name: str) -> tuple[tuple[str, bool], ...]:
    """Names of a kernel's arguments, and whether PyTorch takes them by name only."""
    return tuple((argument.name, argument.kwarg_only) for argument in _target(name)._schema.arguments)


def _arranged(name: str, arguments: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments in the order of the runtime's call as PyTorch wants them: some by position, some by name."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    # What a call passes beyond the operator's arguments is the return value, which is the out argument again.
    for (parameter, keyword_only), value in zip(_parameters(name), arguments, strict=False):
        converted = _converted(parameter, value)
        if keyword_only:
            keywords[parameter] = converted
        else:
            positional.append(converted)
    return positional, keywords


def _converted(name: str, value: Any) -> Any:
    """Codes of types and layouts as PyTorch's objects. Layout and device follow from the out argument."""
    if name in ("layout", "device"):
        return None
    if name == "dtype" and isinstance(value, int):
        return torch_dtype(value)
    if name == "memory_format" and isinstance(value, int):
        if value not in _MEMORY_FORMATS:
            raise FormatError(f"memory format {value} is unknown")
        return _MEMORY_FORMATS[value]
    return value
