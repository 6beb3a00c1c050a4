"""The stock runtime's kernels that compute numbers, and the equivalent functions in a graph of sizes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import torch

#: Kernel of the runtime's own (without "executorch_prim::") -> the equivalent Python function.
_PRIMITIVES: Final[dict[str, Callable[..., Any]]] = {
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
#: The functions that graphs of sizes call instead of Python's, which do not accept symbolic numbers.
_IN_GRAPHS: Final[dict[str, Any]] = {
    "sym_not.Scalar": torch.sym_not,
    "sym_max.Scalar": torch.sym_max,
    "sym_min.Scalar": torch.sym_min,
    "sym_float.Scalar": torch.sym_float,
}

#: Kernel whose result is a number, by its full name -> the function of its other arguments.
NUMBERS: Final[dict[str, Callable[..., Any]]] = {
    **{f"executorch_prim::{name}": function for name, function in _PRIMITIVES.items()},
    "aten::sym_size.int": lambda tensor, axis: tensor.shape[axis],
    "aten::sym_numel": lambda tensor: tensor.numel(),
    "aten::_local_scalar_dense": lambda tensor: tensor.item(),
}
#: Primitives that graphs of sizes never call: only files of other writers have them.
_OF_OTHERS: Final = frozenset({"neg.Scalar", "sym_int.Scalar", "sym_ite.Scalar", "floordiv.int", "mod.int"})
#: Function on numbers that a graph of sizes may call -> the primitive that computes it.
PRIMITIVE_OF: Final[dict[Any, str]] = {
    _IN_GRAPHS.get(name, function): name for name, function in _PRIMITIVES.items() if name not in _OF_OTHERS
}
