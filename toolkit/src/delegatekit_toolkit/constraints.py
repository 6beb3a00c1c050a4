"""Constraints that most backends need: each function here makes one, for a row or for a whole table.

TABLE = SupportTable(ROWS, common=(dtypes("float32"), elements(), max_rank(4)))
row("convolution.default", _convolution, constant("weight", "bias"))
"""

from __future__ import annotations

import math
from typing import Any

from delegatekit_api import Call, Operand

from .support import Constraint


def dtypes(*allowed: str, constants: bool = True) -> Constraint:
    """All tensors have one of these dtypes ("float32"); with `constants=False` constants may have any."""
    words = _listed(allowed)

    def check(call: Call) -> str | None:
        for item in call.tensors:
            if item.dtype_name not in allowed and (constants or not item.is_constant):
                return f"{item.name} is {item.dtype_name}: {words} {'is' if len(allowed) == 1 else 'are'} taken"
        return None

    return _documented(check, f"Tensors are {words}.")


def same_dtypes() -> Constraint:
    """All tensors have the same dtype: PyTorch promotes operands of different ones."""

    def check(call: Call) -> str | None:
        found = sorted({item.dtype_name for item in call.tensors})
        return None if len(found) < 2 else f"operands and results are {_listed(found, 'and')}: one dtype is taken"

    return _documented(check, "All tensors have one dtype.")


def elements() -> Constraint:
    """No tensor is empty (sizes that change count with their bounds elsewhere)."""

    def check(call: Call) -> str | None:
        for item in call.tensors:
            if any(isinstance(size, int) and size == 0 for size in item.shape):
                return f"{item.name} has no elements, {item.shape}"
        return None

    return _documented(check, "Tensors have elements.")


def max_rank(most: int) -> Constraint:
    """No tensor has more axes than `most`."""

    def check(call: Call) -> str | None:
        for item in call.tensors:
            if item.rank > most:
                return f"{item.name} has {item.rank} axes: {most} is the most"
        return None

    return _documented(check, f"At most {most} axes.")


def static_sizes() -> Constraint:
    """No size changes from call to call."""

    def check(call: Call) -> str | None:
        changing = next((item for item in call.tensors if item.is_dynamic), None)
        return None if changing is None else f"{changing.name} {changing.shape} has sizes that change from call to call"

    return _documented(check, "Sizes are fixed.")


def constant(*names: str) -> Constraint:
    """The named tensor arguments are constants, or integers that a dequantize makes numbers of, or left out."""

    def check(call: Call) -> str | None:
        for name in names:
            operand = call[name]
            if isinstance(operand, Operand) and not operand.is_known:
                return f"{name} is computed: a constant is taken"
        return None

    return _documented(check, f"{_listed(names, 'and')} {'is a constant' if len(names) == 1 else 'are constants'}.")


def equals(name: str, *allowed: Any) -> Constraint:
    """An argument has one of the allowed values."""
    words = _listed(tuple(map(str, allowed)))

    def check(call: Call) -> str | None:
        return None if call[name] in allowed else f"{name} = {call[name]}: only {words} is taken"

    return _documented(check, f"{name} is {words}.")


def finite(*names: str, largest: float = 3.4028234663852886e38) -> Constraint:
    """The named arguments are finite numbers; not beyond `largest`, which is float32's limit."""

    def check(call: Call) -> str | None:
        for name in names:
            value = call[name]
            if not isinstance(value, int | float) or not abs(value) <= largest:
                return f"{name} = {value} is not a finite number"
        return None

    return _documented(check, f"{_listed(names, 'and')} {'is' if len(names) == 1 else 'are'} finite.")


def finite_constants() -> Constraint:
    """Constant operands have neither NaN nor infinity in them."""

    def check(call: Call) -> str | None:
        for item in call.operands:
            data = item.constant
            if data is not None and data.is_floating_point() and not bool(data.isfinite().all()):
                return f"{item.name} is a constant with NaN or infinity"
        return None

    return _documented(check, "Constants are finite.")


def element_count(operand: Operand) -> int | None:
    """How many elements a tensor has; None if that changes from call to call."""
    return None if operand.is_dynamic else math.prod(operand.shape)


def _documented(check: Constraint, text: str) -> Constraint:
    check.__doc__ = text
    return check


def _listed(names: tuple[str, ...] | list[str], last: str = "or") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"
