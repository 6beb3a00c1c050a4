"""Normalization over batches, layers, groups and instances, and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..recipe import Recipe, Ref, Values
from .registry import operator
from .sketch import FLOATS, Sketch
from .summands import maybe

_EPSILONS = (1e-5, 1e-3, 0.1, 1.0)
#: This many random numbers are never all close to one another.
_ENOUGH = 4
#: Of one sign, so that a sum of few of them keeps its digits.
_POSITIVE: Values = ("uniform", 0.5, 2.0)
#: Numbers far from 0 beside their spread, as activations after a ReLU with a bias are: the difference of the mean
#: square and the squared mean would lose digits.
_OFFSET: Values = ("uniform", 7.0, 9.0)
_SPREAD: tuple[Values, ...] = (("normal",), ("uniform", -1.0, 3.0))


def _channels(sketch: Sketch, low: int, high: int) -> tuple[int, ...]:
    """A shape with channels in dimension 1."""
    shape = [sketch.integer(1, 3), sketch.integer(1, 4)]
    shape += [sketch.integer(1, 4 if high < 5 else 3) for _ in range(sketch.integer(low, high) - 2)]
    if sketch.rarely(15):
        shape[0] = 0
    return tuple(shape)


@operator(
    "aten._native_batch_norm_legit_no_training.default",
    "aten.batch_norm.default",
    dtypes=FLOATS,
)
def _batch_norm(sketch: Sketch, name: str) -> Recipe:
    """With given statistics: a scale and a shift."""
    shape = _channels(sketch, 2, 5)
    features = (shape[1],)
    # x and the mean are apart, and all the rest is of one sign: a layer's scale and shift, joined into one
    # multiplication and one addition, give the same digits.
    x = sketch.tensor(shape, values=("uniform", 1.0, 3.0))
    weight = maybe(sketch, features, _POSITIVE)
    bias = maybe(sketch, features, _POSITIVE)
    mean = sketch.weight(features, values=("uniform", -1.0, 0.5))
    var = sketch.weight(features, values=_POSITIVE)
    momentum, eps = sketch.choice((0.1, 0.0, 1.0)), sketch.choice(_EPSILONS)
    if name.startswith("aten._native"):
        result = sketch.call(name, x, weight, bias, mean, var, momentum, eps)
        return sketch.recipe(Ref(result.name, 0), depth=4)
    sketch.call(name, x, weight, bias, mean, var, False, momentum, eps, False)
    return sketch.recipe(depth=4)


@operator("aten._native_batch_norm_legit.no_stats", dtypes=FLOATS)
def _batch_norm_no_stats(sketch: Sketch, name: str) -> Recipe:
    """With the batch's own statistics, which it returns."""
    shape = (sketch.integer(2, 3), *_channels(sketch, 2, 5)[1:])
    features = (shape[1],)
    x = sketch.tensor(shape, values=_POSITIVE, layouts=False)
    length = shape[0] * math.prod(shape[2:])
    weight, bias, eps = _settings(sketch, features, length)
    result = sketch.call(name, x, weight, bias, True, 0.1, eps)
    outputs = [Ref(result.name, index) for index in range(3)]
    return sketch.recipe(*outputs[: sketch.choice((1, 3))], reduction_length=length, depth=4)


def _moments(sketch: Sketch, count: int, *, offset: bool = True) -> tuple[Values, bool]:
    """The kind of numbers whose mean and spread are computed, `count` at a time, and whether that loses digits.

    The result's error is that of x by its spread: many times the roundoff where x is far from 0.
    """
    offset = offset and sketch.dtype == "float32" and count >= _ENOUGH
    values = sketch.choice((*_SPREAD, _OFFSET) if offset else _SPREAD)
    return values, values == _OFFSET


def _settings(
    sketch: Sketch, shape: Sequence[int], count: int, *, layouts: bool = True
) -> tuple[Ref | None, Ref | None, float]:
    """Weight, bias and eps. Of few numbers, which may be close to one another, the bias is most of the result.

    Eager multiplies x and its mean by 1 / sqrt(var + eps) before it takes their difference; where the spread is next
    to nothing, as that of one number is, eps must not be small, or rounding errors of x are multiplied by hundreds.
    """
    if count >= _ENOUGH:
        return (
            maybe(sketch, shape, layouts=layouts),
            maybe(sketch, shape, layouts=layouts),
            sketch.choice(_EPSILONS),
        )
    weight = maybe(sketch, shape, _POSITIVE, layouts=layouts)
    bias = sketch.tensor(shape, values=_POSITIVE, constant=not sketch.rarely(4), layouts=layouts)
    return weight, bias, sketch.choice(_EPSILONS[2:])


@operator("aten.layer_norm.default", "aten.native_layer_norm.default", dtypes=FLOATS)
def _layer_norm(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, 5, zeros=False)
    count = sketch.integer(1, len(shape))
    inner = shape[len(shape) - count :]
    if count < len(shape) and sketch.rarely(15):
        shape = (0, *shape[1:])
    native = name == "aten.native_layer_norm.default"
    statistics = native and sketch.rarely(3)  # the means, too, which must not be near 0
    values, ill = (_POSITIVE, False) if statistics else _moments(sketch, math.prod(inner))
    # With dimension 0 expanded, all numbers of a row are the same: the spread would be rounding error only.
    x = sketch.tensor(shape, values=values, layouts=count < len(shape))
    weight, bias, eps = _settings(sketch, inner, math.prod(inner))
    result = sketch.call(name, x, inner, weight, bias, eps)
    outputs = [Ref(result.name, index) for index in range(3)][: 3 if statistics else 1] if native else [result]
    return sketch.recipe(*outputs, reduction_length=math.prod(inner), depth=4, ill_conditioned=ill)


@operator("aten.rms_norm.default", dtypes=FLOATS)
def _rms_norm(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, 5, zeros=False)
    inner = shape[len(shape) - sketch.integer(1, len(shape)) :]
    eps = sketch.choice((None, *_EPSILONS))
    # Without eps it is that of the dtype, which must not matter: the oracle's dtype is another.
    x = sketch.tensor(shape, values=("uniform", 1.0, 2.0) if eps is None else None)
    sketch.call(name, x, inner, maybe(sketch, inner), eps)
    return sketch.recipe(reduction_length=math.prod(inner), depth=4)


@operator("aten.group_norm.default", "aten.native_group_norm.default", dtypes=FLOATS)
def _group_norm(sketch: Sketch, name: str) -> Recipe:
    native = name == "aten.native_group_norm.default"
    groups, each = sketch.integer(1, 3), sketch.integer(1, 3)
    count, channels = sketch.integer(1, 3), groups * each
    spatial = [sketch.integer(1, 3) for _ in range(sketch.integer(0, 3))]
    length = each * math.prod(spatial)
    statistics = native and sketch.rarely(3)
    # For channels_last, eager takes the squared mean from the mean square, too: no numbers far from 0 here.
    values = _POSITIVE if statistics else _moments(sketch, length, offset=False)[0]
    x = sketch.tensor((count, channels, *spatial), values=values, layouts=not native)
    # Eager's own operator takes contiguous tensors: of others it refuses x and misreads the weights.
    weight, bias, eps = _settings(sketch, (channels,), length, layouts=not native)
    if native:
        result = sketch.call(name, x, weight, bias, count, channels, math.prod(spatial), groups, eps)
        outputs = [Ref(result.name, index) for index in range(3 if statistics else 1)]
    else:
        outputs = [sketch.call(name, x, groups, weight, bias, eps)]
    return sketch.recipe(*outputs, reduction_length=length, depth=4)


@operator("aten.instance_norm.default", dtypes=FLOATS)
def _instance_norm(sketch: Sketch, name: str) -> Recipe:
    shape = list(_channels(sketch, 3, 5))
    shape[2] = max(2, shape[2])  # PyTorch refuses instances of one element
    shape[0] = max(1, shape[0])
    features = (shape[1],)
    own = not sketch.rarely(3)  # each instance's own statistics, or given ones
    values, ill = _moments(sketch, math.prod(shape[2:])) if own else (("uniform", 1.0, 3.0), False)
    x = sketch.tensor(shape, values=values)
    weight, bias, eps = _settings(sketch, features, math.prod(shape[2:]))
    mean = var = None
    if not own:
        mean = sketch.weight(features, values=("uniform", -1.0, 0.5))
        var = sketch.weight(features, values=_POSITIVE)
    sketch.call(name, x, weight, bias, mean, var, own, 0.1, eps, False)
    return sketch.recipe(reduction_length=math.prod(shape[2:]), depth=4, ill_conditioned=ill)


@operator(
    "aten._softmax.default",
    "aten._log_softmax.default",
    "aten._safe_softmax.default",
    "aten.softmax.int",
    "aten.log_softmax.int",
    dtypes=FLOATS,
)
def _softmax(sketch: Sketch, name: str) -> Recipe:
    # What attention does, or any shape and dimension.
    scores = sketch.rarely(3)
    shape = sketch.shape(2, 4, zeros=False) if scores else sketch.shape(0, 5)
    dim = -1 if scores else sketch.dim(len(shape))
    values = _scores(sketch, shape)
    x = sketch.tensor(shape, values=values, layouts=values[0] != "literal")
    arguments: list[Any] = [False] if name in ("aten._softmax.default", "aten._log_softmax.default") else []
    sketch.call(name, x, dim, *arguments)
    # Far apart, a rounding of the scores as half precision makes it decides between them.
    wide = values[0] == "uniform"
    return sketch.recipe(reduction_length=shape[dim] if shape else 1, depth=2, ill_conditioned=wide)


def _scores(sketch: Sketch, shape: tuple[int, ...]) -> Values:
    """Small and large numbers, equal ones, -inf among others and alone, infinity and NaN."""
    kind = sketch.choice(("normal", "normal", "wide", "equal", "large", "masked", "special"))
    count = math.prod(shape)
    if kind == "masked" and count < 64:  # rows of nothing but -inf among them
        return ("literal", tuple(sketch.choice((-math.inf, 0.0, 1.0)) for _ in range(count)))
    return {
        "wide": ("uniform", -1000.0, 1000.0),
        "equal": ("integers", 3, 3),
        "large": ("integers", 500, 503),
        "special": ("special",),
    }.get(kind, ("normal",))
