"""Activations of neural networks."""

from __future__ import annotations

import math

from delegatekit_api import Call

from .functions import erf, expm1, log1p, sigmoid, tanh
from .number import Number, V, clamp, composition, exp, maximum, minimum, times, where


@composition
def relu(x: Number[V]) -> Number[V]:
    """max(x, 0)"""
    return maximum(x, 0)


@composition
def silu(x: Number[V]) -> Number[V]:
    """x sigmoid(x)"""
    return x * sigmoid(x)


@composition
def gelu(x: Number[V], approximate: str) -> Number[V]:
    """x (1 + erf(x / sqrt(2))) / 2, or with a hyperbolic tangent, which beyond 8 is 1: float16 soon has no cube."""
    if approximate == "none":
        return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1)
    near = clamp(x, -8.0, 8.0)
    inner = (near + near * near * near * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (tanh(inner) + 1)


@composition
def hardsigmoid(x: Number[V]) -> Number[V]:
    """x + 3 between 0 and 6, over 6."""
    return clamp(x + 3, 0.0, 6.0) / 6


@composition
def hardswish(x: Number[V]) -> Number[V]:
    """x hardsigmoid(x)"""
    return x * hardsigmoid(x)


@composition
def hardshrink(x: Number[V], lambd: float) -> Number[V]:
    """0 where |x| is at most `lambd`."""
    return where(abs(x) <= lambd, 0, x)


@composition
def elu(x: Number[V], alpha: float, scale: float, input_scale: float) -> Number[V]:
    """scale x above 0, scale alpha (e^(input_scale x) - 1) below."""
    below = times(expm1(times(minimum(x, 0), input_scale)), alpha * scale)
    return where(x > 0, times(x, scale), below)


@composition
def smooth_relu(x: Number[V]) -> Number[V]:
    """ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|)"""
    return maximum(x, 0) + log1p(exp(-abs(x)))


def softplus(x: Number[V], beta: float, threshold: float) -> Number[V]:
    """ln(1 + e^(beta x)) / beta, and x where beta x is above the threshold.

    From 17 on the curve is the line in float32. With another beta than 1 only what the line lacks is scaled, which does
    not leave the type.
    """
    curve = smooth_relu(x) if beta == 1 else maximum(x, 0) + log1p(exp(abs(x) * -beta)) / beta
    return curve if threshold >= 17 else where(times(x, beta) > threshold, x, curve)


def rising_softplus(call: Call) -> str | None:
    """beta is positive."""
    return None if call["beta"] > 0 else f"beta = {call['beta']}: a positive number is taken"


@composition
def mish(x: Number[V]) -> Number[V]:
    """x tanh(ln(1 + e^x)). A target without infinities is not trusted to have 0 for the logarithm far below 0."""
    return (x if x.dialect.infinities else maximum(x, -16.0)) * tanh(smooth_relu(x))
