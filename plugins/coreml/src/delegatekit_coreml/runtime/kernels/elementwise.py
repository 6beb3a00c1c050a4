"""Operations on each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn import functional

from ...ir.types import BY_NAME, DataType
from ..kernel import Kernel, Tensor, held_as, kernel


def _unary(function: Callable[[Any], Any]) -> Kernel:
    def run(x: Tensor) -> Tensor:
        result: Tensor = function(x)
        return result

    return kernel(run)


def _binary(function: Callable[[Any, Any], Any]) -> Kernel:
    def run(x: Tensor, y: Tensor) -> Tensor:
        result: Tensor = function(x, y)
        return result

    return kernel(run)


def _cast(x: Tensor, dtype: str) -> Tensor:
    datatype = BY_NAME.get(dtype)
    if datatype is None or datatype is DataType.STRING:
        raise ValueError(f"a cast to {dtype!r:.20}")
    if datatype is DataType.BOOL:
        return x != 0
    if datatype.is_float:
        return x.to(torch.float32)
    if x.is_floating_point():
        bounds = torch.iinfo(getattr(torch, dtype))
        x = x.double().clamp(bounds.min, bounds.max)
    wide = x.to(torch.int64)
    if not datatype.is_signed:
        wide = wide & ((1 << datatype.bits) - 1)
    return wide.to(held_as(datatype))


def _select(cond: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(cond, a, b)


def _clip(x: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.clamp(x, alpha, beta)


def _logarithm(x: Tensor, epsilon: float) -> Tensor:
    return torch.log(x + epsilon)


def _root(x: Tensor, epsilon: float) -> Tensor:
    return torch.rsqrt(x + epsilon)


def _inverse(x: Tensor, epsilon: float) -> Tensor:
    return torch.reciprocal(x + epsilon)


def _threshold(x: Tensor, alpha: float) -> Tensor:
    return torch.clamp(x, min=alpha)


def _floor_division(x: Tensor, y: Tensor) -> Tensor:
    return torch.div(x, y, rounding_mode="floor")


def _division(x: Tensor, y: Tensor) -> Tensor:
    return torch.div(x, y) if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


# -- activations -------------------------------------------------------------------------------------------------------


def _gelu(x: Tensor, mode: str) -> Tensor:
    return functional.gelu(x, approximate={"EXACT": "none", "TANH_APPROXIMATION": "tanh"}[mode])


def _leaky_relu(x: Tensor, alpha: float) -> Tensor:
    return functional.leaky_relu(x, alpha)


def _prelu(x: Tensor, alpha: Tensor) -> Tensor:
    return functional.prelu(x, alpha)


def _elu(x: Tensor, alpha: float) -> Tensor:
    return functional.elu(x, alpha)


def _sigmoid_hard(x: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.clamp(x * alpha + beta, 0, 1)


def _linear_activation(x: Tensor, alpha: float, beta: float) -> Tensor:
    return x * alpha + beta


def _thresholded_relu(x: Tensor, alpha: float) -> Tensor:
    return torch.where(x >= alpha, x, 0.0)


def _softplus(x: Tensor) -> Tensor:
    # PyTorch's own function is linear from its threshold on.
    return torch.logaddexp(x, torch.zeros_like(x))


def _softplus_parametric(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    sizes = (-1, *[1] * (x.dim() - 2))
    inner = x * beta.reshape(sizes)
    return alpha.reshape(sizes) * torch.logaddexp(inner, torch.zeros_like(inner))


KERNELS: Final[dict[str, Kernel]] = {
    **{
        name: _unary(getattr(torch, name))
        for name in (
            *(
                "abs",
                "acos",
                "asin",
                "atan",
                "atanh",
                "ceil",
                "cos",
                "cosh",
                "erf",
                "exp",
                "exp2",
                "floor",
                "relu",
                "round",
                "sigmoid",
            ),
            *("sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "logical_not"),
        )
    },
    "relu6": _unary(functional.relu6),
    "identity": _unary(lambda x: x),
    "silu": _unary(functional.silu),
    "softsign": _unary(functional.softsign),
    "softplus": kernel(_softplus),
    "add": _binary(torch.add),
    "sub": _binary(torch.sub),
    "mul": _binary(torch.mul),
    "real_div": kernel(_division),
    "floor_div": kernel(_floor_division),
    "mod": _binary(torch.remainder),
    "pow": _binary(torch.pow),
    "maximum": _binary(torch.maximum),
    "minimum": _binary(torch.minimum),
    "equal": _binary(torch.eq),
    "not_equal": _binary(torch.ne),
    "greater": _binary(torch.gt),
    "greater_equal": _binary(torch.ge),
    "less": _binary(torch.lt),
    "less_equal": _binary(torch.le),
    "logical_and": _binary(torch.logical_and),
    "logical_or": _binary(torch.logical_or),
    "logical_xor": _binary(torch.logical_xor),
    "select": kernel(_select),
    "cast": kernel(_cast),
    "clip": kernel(_clip),
    "log": kernel(_logarithm),
    "rsqrt": kernel(_root),
    "inverse": kernel(_inverse),
    "threshold": kernel(_threshold),
    "gelu": kernel(_gelu),
    "leaky_relu": kernel(_leaky_relu),
    "prelu": kernel(_prelu),
    "elu": kernel(_elu),
    "sigmoid_hard": kernel(_sigmoid_hard),
    "linear_activation": kernel(_linear_activation),
    "thresholded_relu": kernel(_thresholded_relu),
    "softplus_parametric": kernel(_softplus_parametric),
}
