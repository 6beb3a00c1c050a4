"""The functions on numbers that a step may call: those with which a program computes sizes from sizes.

This is the closed list of the edge dialect ("The edge dialect" in docs/architecture.md).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final


def _largest(first: Any, second: Any) -> Any:
    return max(first, second)


def _smallest(first: Any, second: Any) -> Any:
    return min(first, second)


#: Name in a blob -> function. "getitem" picks one of an operator's results; "torch" functions are torch's, on numbers.
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "getitem": operator.getitem,
    "aten.sym_size.int": lambda tensor, axis: tensor.shape[axis],
    "operator.add": operator.add,
    "operator.sub": operator.sub,
    "operator.mul": operator.mul,
    "operator.floordiv": operator.floordiv,
    "operator.truediv": operator.truediv,
    "operator.mod": operator.mod,
    "operator.neg": operator.neg,
    "operator.eq": operator.eq,
    "operator.ne": operator.ne,
    "operator.lt": operator.lt,
    "operator.le": operator.le,
    "operator.gt": operator.gt,
    "operator.ge": operator.ge,
    "math.trunc": math.trunc,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "builtins.round": round,
    "torch.sym_max": _largest,
    "torch.sym_min": _smallest,
    "torch.sym_not": operator.not_,
    "torch.sym_float": float,
}


def name_of(function: Any) -> str | None:
    """The name in a blob of a Python function of a graph; None if it has none."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    if function is operator.getitem:
        return "getitem"
    module = {"_operator": "operator"}.get(module, module)
    full = f"{module}.{name}"
    return full if full in FUNCTIONS else None
