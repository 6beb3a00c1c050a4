"""Binds a kernel call of the file to the function that computes it: ATen's out-variants, and the runtime's own few."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch._ops import OpOverload

from delegatekit_api import FormatError

from ..pte.dtypes import torch_dtype

#: Scalar arithmetic of the runtime: name -> Python's function of the same meaning.
SCALAR_OPERATORS: dict[str, Callable[..., Any]] = {
    "add.Scalar": operator.add,
    "sub.Scalar": operator.sub,
    "mul.Scalar": operator.mul,
    "floordiv.Scalar": operator.floordiv,
    "floordiv.int": operator.floordiv,
    "truediv.Scalar": operator.truediv,
    "mod.Scalar": operator.mod,
    "mod.int": operator.mod,
    "neg.Scalar": operator.neg,
    "eq.Scalar": operator.eq,
    "gt.Scalar": operator.gt,
    "ge.Scalar": operator.ge,
    "lt.Scalar": operator.lt,
    "le.Scalar": operator.le,
    "sym_not.Scalar": operator.not_,
    "sym_max.Scalar": max,
    "sym_min.Scalar": min,
    "sym_float.Scalar": float,
    "sym_int.Scalar": int,
    "ceil.Scalar": math.ceil,
    "round.Scalar": round,
    "trunc.Scalar": math.trunc,
    "sym_ite.Scalar": lambda condition, yes, no: yes if condition else no,
}

#: Arguments whose integer value is a code of PyTorch's.
_DTYPES, _MEMORY_FORMATS = "ScalarType", "MemoryFormat"


def bind(name: str, arguments: Sequence[Any]) -> Callable[[], Any]:
    """The call of kernel `name` on values (tensors, numbers, lists) that stay the same objects over all calls."""
    target = _target(name)
    positional, keywords = _arranged(target, arguments)
    return partial(target._op, *positional, **keywords)


def outputs(name: str, arguments: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """The tensors among the arguments that the kernel writes."""
    found: list[torch.Tensor] = []
    for declared, value in zip(_target(name)._schema.arguments, arguments, strict=False):
        if declared.is_out:
            found.extend(value if isinstance(value, list | tuple) else [value])
    return tuple(found)


@cache
def _target(name: str) -> OpOverload:
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    if namespace == "dim_order_ops":
        # The tensors of a call carry their layout themselves: what is left is the plain operator.
        packet, overload = {"_to_dim_order_copy": ("_to_copy", "out"), "_clone_dim_order": ("clone", "out")}.get(
            packet, (packet, overload)
        )
        namespace = "aten"
    target = getattr(getattr(getattr(torch.ops, namespace, None), packet, None), overload or "default", None)
    if not isinstance(target, OpOverload):
        raise FormatError(f"the Python engine has no kernel {name}", hint="run the file in the ExecuTorch runtime")
    return target


def _arranged(target: OpOverload, arguments: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments in the order of the runtime's call as PyTorch wants them: some by position, some by name."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for declared, value in zip(target._schema.arguments, arguments, strict=False):
        converted = _convert(str(declared.type), declared.name, value)
        if declared.kwarg_only:
            keywords[declared.name] = converted
        else:
            positional.append(converted)
    return positional, keywords


def _convert(kind: str, name: str, value: Any) -> Any:
    if value is None or isinstance(value, torch.Tensor):
        return value
    if name == "dtype" and isinstance(value, int):
        return torch_dtype(value)
    if name == "memory_format" and isinstance(value, int):
        return (torch.contiguous_format, torch.preserve_format)[value]
    if name in ("layout", "device") or _MEMORY_FORMATS in kind:
        return None
    return value
