"""Written examples of overflow: of numbers on the way to finite results, and of results that just stay finite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from ...recipe import Recipe, Ref, Values
from .rows import of_each, row
from .sketch import HurtfulSketch

#: Function -> nearly the largest number whose result is finite.
_ENDS: Mapping[str, Mapping[str, float]] = {
    "float32": {"exp": 88.7228, "expm1": 88.7228, "exp2": 127.9999, "sinh": 89.4159, "cosh": 89.4159},
    "float16": {"exp": 11.085, "expm1": 11.085, "exp2": 15.99, "sinh": 11.775, "cosh": 11.775},
}
#: Distances from there.
_BEFORE = (0.0, 0.0625, 0.25, 0.5, 1.0, 2.0)


@row(*(f"aten.{name}.default" for name in _ENDS["float32"]), dtypes=("float32", "float16"))
def _largest_results(sketch: HurtfulSketch, name: str) -> Recipe:
    """Results up to the largest number of the type, each in a tensor of its own."""
    end = _ENDS[sketch.dtype][name.split(".")[1]]
    return of_each(sketch, name, (tuple(end - distance - place / 64 for place in range(5)) for distance in _BEFORE))


#: Activations that are made of exponentials: these overflow, on one side or on both, and the results do not.
_ACTIVATIONS: Mapping[str, tuple[Any, ...]] = {
    **{f"aten.{name}.default": () for name in ("silu", "mish", "log_sigmoid", "sigmoid", "tanh", "softplus", "elu")},
    "aten.celu.default": (2.0,),
    "aten.selu.default": (),
}


@row(*_ACTIVATIONS, dtypes=("float32", "float16"))
def _exponentials_beyond(sketch: HurtfulSketch, name: str) -> Recipe:
    """Numbers of either sign, about those whose exponentials overflow and far beyond."""
    about = (11.0, 11.125, 12.0, 22.0, 44.5, 88.5, 89.0, 104.0, 178.0)
    x = sketch.tensor((2, 9), values=("literal", (about, tuple(-number for number in about))), layouts=False)
    return sketch.recipe(sketch.call(name, x, *_ACTIVATIONS[name]), depth=4)


@row("aten.logaddexp.default", "aten.logaddexp2.default")
def _logarithms_of_sums(sketch: HurtfulSketch, name: str) -> Recipe:
    """Logarithms of sums whose terms overflow, or are all 0."""
    x, y = (
        sketch.tensor((6,), values=("literal", numbers), layouts=False)
        for numbers in ((89.0, -104.0, 150.0, 1000.0, 130.0, 0.5), (88.0, -103.0, 150.5, -1000.0, 128.0, -200.0))
    )
    return sketch.recipe(sketch.call(name, x, y), depth=3)


@row("aten.sum.default", "aten.sum.dim_IntList", "aten.cumsum.default", dtypes=("int32",))
def _whole_sums(sketch: HurtfulSketch, name: str) -> Recipe:
    """Sums of whole numbers just below 2**31, which no float32 holds."""
    made = []
    for count in (3, 129):
        most = (2**31 - 1) // count
        x = sketch.tensor((2, count), values=("integers", most - 1000, most), layouts=False)
        axes = {"aten.sum.default": [], "aten.cumsum.default": [1]}.get(name, [[1]])
        if name == "aten.sum.default":
            x = sketch.call("aten.select.int", x, 0, 1)
        made += [sketch.call(name, x, *axes, dtype=dtype) for dtype in (torch.int32, torch.int64)]
    return sketch.recipe(*made, exact=True)


#: A layer's weights and bias, positive: none of its results is 0.
_POSITIVE: Values = ("uniform", 1.25, 4.0)
_LAYERS = ("aten.linear.default", "aten.mm.default", "aten.addmm.default", "aten.conv1d.default", "aten.conv2d.default")


def _layer(sketch: HurtfulSketch, name: str, values: Values, biased: bool = True) -> Ref:
    """A layer of 5 channels whose weights are constants. Channels are the last axis of matrices, else the second."""
    if "conv" not in name:
        x = sketch.tensor((3, 4), values=values, layouts=False)
        weight = sketch.tensor((5, 4) if "linear" in name else (4, 5), values=_POSITIVE, constant=True)
        if name == "aten.mm.default":
            return sketch.call(name, x, weight)
        bias = sketch.tensor((5,), values=_POSITIVE if biased else ("literal", (0.0,) * 5), constant=True)
        return sketch.call(name, bias, x, weight) if "addmm" in name else sketch.call(name, x, weight, bias)
    rank = 1 if "1d" in name else 2
    x = sketch.tensor((1, 4, *[6] * rank), values=values, layouts=False)
    weight = sketch.tensor((5, 4, *[3] * rank), values=_POSITIVE, constant=True)
    added = [sketch.tensor((5,), values=_POSITIVE, constant=True)] if biased else []
    return sketch.call(name, x, weight, *added)


def _for_each_channel(sketch: HurtfulSketch, name: str, numbers: tuple[float, ...]) -> Ref:
    rank = {"aten.conv1d.default": 1, "aten.conv2d.default": 2}.get(name, 0)
    return sketch.tensor((5, *[1] * rank), values=("literal", numbers), constant=True)


@row(*_LAYERS)
def _infinite_scales(sketch: HurtfulSketch, name: str) -> Recipe:
    """Layers times infinities and divided by zeros, a constant for each channel: folded into weights they make NaN."""
    made = []
    for scaled, numbers in (("mul", (math.inf, 2.0, -math.inf, 0.5, -1.0)), ("div", (0.0, 2.0, -0.0, math.inf, -1.0))):
        y = _layer(sketch, name, ("uniform", 0.5, 1.5))
        made.append(sketch.call(f"aten.{scaled}.Tensor", y, _for_each_channel(sketch, name, numbers)))
    return sketch.recipe(*made, reduction_length=37, depth=2)


@row(*_LAYERS)
def _far_scales(sketch: HurtfulSketch, name: str) -> Recipe:
    """Results times far numbers, which beside the weights, or multiplied with one another, are infinite or nearly 0."""
    made = []
    for power, scales in ((-90, (126,)), (-110, (70, 70)), (110, (-70, -70))):
        for form in ("Scalar", "Tensor"):
            # A layer for each: where two read its result, none is folded into the weights.
            y = _layer(sketch, name, ("uniform", math.ldexp(1.0, power), math.ldexp(3.0, power)), biased=False)
            for scale in scales:
                number: Any = math.ldexp(1.5, scale)
                factor = number if form == "Scalar" else _for_each_channel(sketch, name, (number,) * 5)
                y = sketch.call(f"aten.mul.{form}", y, factor)
            made.append(y)
    return sketch.recipe(*made, reduction_length=37, depth=3)
