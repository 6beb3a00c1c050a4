"""Copies and conversions to other dtypes."""

from __future__ import annotations

from typing import Any

import torch

from ..recipe import Recipe, Ref, Values
from .operands import EVERY, extremes, is_float, multiples
from .registry import operator
from .sketch import Sketch

_FORMATS = (torch.preserve_format, torch.contiguous_format)


def _convertible(sketch: Sketch, source: str, target: str) -> Values:
    """Numbers whose conversion is defined: fractions are cut off, integers wrap around, floats stay in range."""
    if source == "bool":
        return ("integers", 0, 1)
    if is_float(source):
        if is_float(target):
            # Far apart, halfway between two float16 or bfloat16 numbers, too large for float16, and NaN.
            ties: Values = ("among", (1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, -0.0, 3.0))
            return sketch.choice((("normal",), ties, ("uniform", -1e5, 1e5), ("special",)))
        if target == "bool":
            return sketch.choice((("special",), multiples(0.25, -1, 1)))
        return multiples(0.25, 0, 6) if target == "uint8" else multiples(0.25, -6, 6)
    small: Values = ("integers", 0, 9) if source == "uint8" else ("integers", -5, 5)
    return sketch.choice((small, extremes(source)))


def _source(sketch: Sketch, target: str) -> Ref:
    return sketch.tensor(sketch.shape(), values=_convertible(sketch, sketch.dtype, target))


def _target(sketch: Sketch) -> str:
    others = [dtype for dtype in EVERY if dtype != sketch.dtype]
    return sketch.choice(others) if not sketch.rarely(8) else sketch.dtype


@operator("aten._to_copy.default", dtypes=EVERY)
def _to_copy(sketch: Sketch, name: str) -> Recipe:
    target = _target(sketch)
    x = _source(sketch, target)
    kwargs: dict[str, Any] = {"dtype": getattr(torch, target)} if not sketch.rarely(8) else {}
    if sketch.rarely(4):
        kwargs["memory_format"] = sketch.choice(_FORMATS)
    sketch.call(name, x, **kwargs)
    return sketch.recipe(exact=True)


@operator("aten.to.dtype", dtypes=EVERY)
def _to_dtype(sketch: Sketch, name: str) -> Recipe:
    target = _target(sketch)
    x = _source(sketch, target)
    arguments = (False, True) if sketch.rarely(4) else ()
    result = sketch.call(name, x, getattr(torch, target), *arguments)
    # Converted tensors are mostly used further.
    if target != "bool" and sketch.flag():
        result = sketch.call("aten.abs.default", result)
    return sketch.recipe(result, exact=True)


@operator("aten.type_as.default", "aten.to.other", dtypes=EVERY)
def _to_other(sketch: Sketch, name: str) -> Recipe:
    target = _target(sketch)
    x = _source(sketch, target)
    other = sketch.tensor(sketch.shape(zeros=False), target)
    sketch.call(name, x, other)
    return sketch.recipe(exact=True)


@operator("aten.copy.default", dtypes=EVERY)
def _copy(sketch: Sketch, name: str) -> Recipe:
    target = _target(sketch) if sketch.rarely(3) else sketch.dtype
    shape = sketch.shape()
    x = sketch.tensor(shape, target)
    source = sketch.tensor(sketch.broadcast(shape), values=_convertible(sketch, sketch.dtype, target))
    sketch.call(name, x, source)
    return sketch.recipe(exact=True)


@operator("aten.lift_fresh_copy.default", dtypes=EVERY)
def _lifted(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(), special=True)
    return _copied(sketch, x, sketch.call(name, x))


@operator("aten.native_dropout.default", dtypes=EVERY)
def _native_dropout(sketch: Sketch, name: str) -> Recipe:
    # Only in eval mode is the result determined; in training it is random. Without elements, eager's mask is of floats.
    x = sketch.tensor(sketch.shape(zeros=False), special=True)
    result = sketch.call(name, x, sketch.choice((0.5, 0.0, 1.0)), False)
    return sketch.recipe(Ref(result.name, 0), Ref(result.name, 1), exact=True)


@operator("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default", dtypes=EVERY)
def _dropout(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(), special=True)
    return _copied(sketch, x, sketch.call(name, x, sketch.choice((0.5, 0.0, 1.0)), False))


def _copied(sketch: Sketch, x: Ref, copy: Ref) -> Recipe:
    """The copy alone, beside its original, twice, or used further."""
    form = sketch.integer(0, 3)
    if form == 3 and sketch.dtype not in ("bool", "uint8"):
        copy = sketch.call("aten.neg.default", copy)
    outputs = ((copy,), (copy, x), (copy, copy), (copy,))[form]
    return sketch.recipe(*outputs, exact=True)
