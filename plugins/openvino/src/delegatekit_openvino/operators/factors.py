"""Constant factors, which OpenVINO multiplies with one another and with a layer's weights before it compiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import torch

from delegatekit_api import Call, Operand

from ..ir.builder import computed_in

_JOINED: Final = ("add", "sub", "rsub", "mul", "div", "full")
#: Operators -> the arguments that become factors.
_FACTORS: Final = {
    "mul": ("self", "other"),
    **dict.fromkeys(("add", "sub", "rsub"), ("alpha",)),
    **dict.fromkeys(("addmm", "baddbmm"), ("alpha", "beta")),
}
#: Layers -> the argument that has the weights.
_WEIGHTS: Final = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "convolution"), "weight"),
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), "mat2"),
    "matmul": "other",
}


def finite_numbers(call: Call) -> str | None:
    """Constant factors and added numbers are finite, and constant divisors have finite inverses.

    Added ones where sizes change: OpenVINO takes infinite ones for 0 there. It multiplies the weights of a layer, some
    of which are 0, by factors after it.
    """
    name = _name(call)
    changes = name in _JOINED and any(item.is_dynamic for item in (*call.tensors, *call.results))
    keys, dtype = _FACTORS.get(name, ()), computed_in(call.results[0].dtype)
    for key in ("self", "other", "fill_value", "alpha", "beta"):
        known = call.get(key)
        data = known.constant if isinstance(known, Operand) else known
        if not isinstance(data, torch.Tensor | int | float):
            continue
        numbers = torch.as_tensor(data).detach().to(dtype)
        if (key in keys or (changes and numbers.numel() == 1)) and bool(numbers.isinf().any()):
            return f"{key} is infinite"
        if (name, key) == ("div", "other") and bool(numbers.reciprocal().isinf().any()):
            return f"{key} is 0, or has an infinite inverse"
    return None


def finite_products(call: Call) -> str | None:
    """The products of constant factors that follow one another, and of a layer's weights, are numbers of float32.

    Factors of other types are multiplied in float32, too.
    """
    factor = _factor(call)
    if factor is None:
        return None
    value, product = factor
    limits = torch.finfo(torch.float32)
    for size in _sizes_before(value):
        product += size
        if not math.log2(limits.tiny) <= product <= math.log2(limits.max):
            number = "infinite" if product > 0 else "as good as 0"
            return f"with the constants before it, its factor is {number}, and OpenVINO multiplies them beforehand"
    return None


def _sizes_before(value: Operand) -> Iterator[float]:
    """The sizes of the constant factors that make a value, from the last one on, and of the weights before them."""
    call = value.producer
    while call is not None and (factor := _factor(call)) is not None:
        value, size = factor
        yield size
        call = value.producer
    weight = None if call is None else call.get(_WEIGHTS.get(_name(call), ""))
    if isinstance(weight, Operand) and weight.constant is not None:
        yield _size(weight.constant)


def _factor(call: Call) -> tuple[Operand, float] | None:
    """The value that a call multiplies by a constant, and the constant's size; None if it does not."""
    name = _name(call)
    if name not in ("mul", "div") or call.has("rounding_mode") or not call.results[0].dtype.is_floating_point:
        return None
    left, right = call["self"], call["other"]
    if name == "mul" and left.is_constant:
        left, right = right, left
    number = right.constant if isinstance(right, Operand) else right
    if not isinstance(left, Operand) or not isinstance(number, torch.Tensor | int | float):
        return None
    return left, _size(number) if name == "mul" else -_size(number)


def _size(constant: torch.Tensor | float) -> float:
    """The logarithm of the largest element's size; 0 where there is none but zeros and infinite ones."""
    size = _largest(constant) if isinstance(constant, torch.Tensor) else abs(constant)
    if not math.isfinite(size):
        size = _largest(constant[constant.isfinite()]) if isinstance(constant, torch.Tensor) else 0.0
    return math.log2(size) if size else 0.0


def _largest(numbers: torch.Tensor) -> float:
    return max(abs(float(end)) for end in torch.aminmax(numbers.detach())) if numbers.numel() else 0.0


def _name(call: Call) -> str:
    return call.operator.removeprefix("aten.").partition(".")[0]
