"""Tensors that are made from numbers: filled, counted up, and random ones as far as they are determined."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..recipe import Recipe, Ref
from .operands import EVERY, EVERY_NUMBER, exact_numbers
from .registry import operator
from .sketch import Sketch


def _fill_value(sketch: Sketch, dtype: str) -> float | int:
    if dtype == "bool":
        return sketch.choice((True, False))
    if dtype in ("float32", "float16", "bfloat16", "float64"):
        return sketch.choice((0.0, 1.5, -2, 1, math.inf, math.nan, -0.5))
    return sketch.choice((0, 1, 7) if dtype == "uint8" else (0, 1, -3, 100))


def _made(sketch: Sketch, made: Ref, shape: tuple[int, ...]) -> Recipe:
    """The made tensor beside an input, and added to it: a program without inputs is a different matter."""
    x = sketch.tensor(sketch.broadcast(shape), values=exact_numbers(sketch.dtype), layouts=False)
    together = sketch.call("aten.add.Tensor", made, x)
    return sketch.recipe(*((together,), (made, x), (together, made))[sketch.integer(0, 2)], exact=True)


@operator("aten.full.default", dtypes=EVERY)
def _full(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    made = sketch.call(name, shape, _fill_value(sketch, sketch.dtype), dtype=getattr(torch, sketch.dtype))
    return _made(sketch, made, shape)


@operator("aten.zeros.default", "aten.ones.default", dtypes=EVERY)
def _filled(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    return _made(sketch, sketch.call(name, shape, dtype=getattr(torch, sketch.dtype)), shape)


@operator("aten.empty.memory_format", "aten.empty_strided.default", dtypes=EVERY)
def _empty(sketch: Sketch, name: str) -> Recipe:
    # New memory holds anything; only filled memory is known.
    shape = sketch.shape()
    strides = [math.prod(max(size, 1) for size in shape[dim + 1 :]) for dim in range(len(shape))]
    arguments = (shape, strides) if name == "aten.empty_strided.default" else (shape,)
    made = sketch.call(name, *arguments, dtype=getattr(torch, sketch.dtype))
    return _made(sketch, sketch.call("aten.fill.Scalar", made, _fill_value(sketch, sketch.dtype)), shape)


@operator("aten.fill.Scalar", dtypes=EVERY)
def _fill(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(), special=True)
    sketch.call(name, x, _fill_value(sketch, sketch.dtype))
    return sketch.recipe(exact=True)


@operator("aten.full_like.default", "aten.zeros_like.default", "aten.ones_like.default", dtypes=EVERY)
@operator("aten.new_full.default", "aten.new_zeros.default", "aten.new_ones.default", dtypes=EVERY)
def _like(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(), special=True)
    other = sketch.choice(EVERY) if sketch.rarely(3) else None
    arguments: list[Any] = [sketch.shape()] if ".new_" in name else []
    if "full" in name:
        arguments.append(_fill_value(sketch, other or sketch.dtype))
    # Without a dtype the result has the input's, which is another one in the oracle's double precision.
    dtype = getattr(torch, other or sketch.dtype)
    sketch.call(name, x, *arguments, **({"dtype": dtype} if other or sketch.flag() else {}))
    return sketch.recipe(exact=True)


@operator("aten.scalar_tensor.default", dtypes=EVERY)
def _scalar_tensor(sketch: Sketch, name: str) -> Recipe:
    made = sketch.call(name, _fill_value(sketch, sketch.dtype), dtype=getattr(torch, sketch.dtype))
    return _made(sketch, made, ())


@operator("aten.arange.start_step", "aten.arange.start", "aten.arange.default", dtypes=EVERY_NUMBER)
def _arange(sketch: Sketch, name: str) -> Recipe:
    count = sketch.integer(0 if sketch.rarely(8) else 1, 6)
    step = sketch.choice((1, 2, 0.5, 3.0, -1, -0.25) if sketch.is_float else (1, 2, 3))
    start = sketch.choice((0, 1, 2.5, -3) if sketch.is_float else (0, 1, 4))
    form = name.rpartition(".")[2]
    if form != "start_step":
        step = 1
    if form == "default":
        start = 0
    # The end itself is left out; it need not be a whole number of steps away.
    end = start + count * step
    if count and form != "default" and abs(step) > 1 and sketch.flag():
        end -= 1 if step > 0 else -1
    arguments = {"default": (end,), "start": (start, end), "start_step": (start, end, step)}[form]
    made = sketch.call(name, *arguments, dtype=getattr(torch, sketch.dtype))
    return _made(sketch, made, (count,))


@operator("aten.linspace.default", dtypes=("float32", "float64", "int64"))
def _linspace(sketch: Sketch, name: str) -> Recipe:
    # Steps are whole or a quarter, so that the numbers are exact in any computation.
    steps = sketch.integer(1, 6)
    start, step = sketch.integer(-3, 3), sketch.choice((1.0, 0.25, -2.0) if sketch.is_float else (1, 3, -2))
    end = start + step * (steps - 1)
    made = sketch.call(name, start, end, steps, dtype=getattr(torch, sketch.dtype))
    return _made(sketch, made, (steps,))


@operator("aten.fill.Tensor", dtypes=EVERY)
def _fill_from_tensor(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(), special=True)
    sketch.call(name, x, sketch.tensor((), constant=sketch.flag()))
    return sketch.recipe(exact=True)


@operator("aten.eye.default", "aten.eye.m", dtypes=EVERY)
def _eye(sketch: Sketch, name: str) -> Recipe:
    rows = sketch.integer(1, 5)
    columns = rows if name == "aten.eye.default" else sketch.integer(1, 5)
    arguments = (rows,) if name == "aten.eye.default" else (rows, columns)
    return _made(sketch, sketch.call(name, *arguments, dtype=getattr(torch, sketch.dtype)), (rows, columns))


# Random numbers: of these, only their range is known. A generator must keep to it, or refuse.


@operator("aten.rand.default", dtypes=("float32",))
def _rand(sketch: Sketch, name: str) -> Recipe:
    made = sketch.call(name, sketch.shape())
    # A number below 1 is 1 as float16 or bfloat16, in which the comparisons may be computed: one of 4096, drawn anew.
    within = sketch.call(
        "aten.logical_and.default", sketch.call("aten.ge.Scalar", made, 0), sketch.call("aten.le.Scalar", made, 1)
    )
    return sketch.recipe(within, sketch.tensor(sketch.shape()), exact=True)


@operator("aten.randn.default", dtypes=("float32",))
def _randn(sketch: Sketch, name: str) -> Recipe:
    made = sketch.call(name, sketch.shape())
    within = sketch.call("aten.lt.Scalar", sketch.call("aten.abs.default", made), 100)
    return sketch.recipe(within, sketch.tensor(sketch.shape()), exact=True)


@operator("aten.randperm.default", dtypes=("int64",))
def _randperm(sketch: Sketch, name: str) -> Recipe:
    made = sketch.call(name, sketch.integer(1, 6))
    total = sketch.call("aten.sum.dim_IntList", made, [0])
    return sketch.recipe(total, sketch.tensor(sketch.shape()), exact=True)
