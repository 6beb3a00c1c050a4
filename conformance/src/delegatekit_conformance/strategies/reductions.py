"""Sums, means, products, extremes and other results of many numbers; sorting; running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..recipe import Recipe, Ref, Values
from .registry import operator
from .sketch import ALL, FLOATS, NUMBERS, Sketch
from .summands import summands

#: Half of the elements of a tensor are NaN, infinities or zeros, the others whole numbers, whose sums are exact.
_SPECIAL: Values = ("special", -3, 3)
#: Infinities without NaN, so that NaN can only come from them.
_INFINITE: Values = ("among", (math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0))
#: Numbers of one sign beside an infinity.
_ABOVE: Values = ("among", (1.0, 2.0, 1.5, 3.0, 2.5, math.inf))
_BELOW: Values = ("among", (1.0, 2.0, 1.5, 3.0, 2.5, -math.inf))


def _rank_zero_dims(sketch: Sketch, shape: Sequence[int]) -> tuple[int, ...]:
    return () if shape or not sketch.flag() else (sketch.dim(0),)


def _dims(sketch: Sketch, shape: Sequence[int]) -> tuple[int, ...]:
    """Dimensions to reduce, at least one if there is one. A tensor of rank 0 has the dimensions 0 and -1."""
    return sketch.dims(len(shape)) or _rank_zero_dims(sketch, shape)


def _reduced(shape: Sequence[int], dims: Sequence[int], *, keepdim: bool = False) -> tuple[int, ...]:
    """The shape of a reduction over the dimensions; none means all."""
    rank = len(shape)
    gone = {dim % rank for dim in dims} if rank and dims else set(range(rank))
    kept = [1 if dim in gone else size for dim, size in enumerate(shape) if keepdim or dim not in gone]
    return tuple(kept)


def _length(shape: Sequence[int], dims: Sequence[int]) -> int:
    """The number of elements that are reduced to one result."""
    return math.prod(shape) if not dims or not shape else math.prod(shape[dim] for dim in dims)


def _without_empty(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """The shape with no zero among the dimensions that are reduced: the largest of no numbers is not defined."""
    if not dims:
        return tuple(max(1, size) for size in shape)
    gone = {dim % max(len(shape), 1) for dim in dims}
    return tuple(max(1, size) if dim in gone else size for dim, size in enumerate(shape))


def _keepdim(sketch: Sketch) -> tuple[bool, ...]:
    """The optional argument `keepdim`, perhaps left out."""
    return () if sketch.flag() else (sketch.flag(),)


# Sums


def _result_dtype(sketch: Sketch, choices: Sequence[torch.dtype]) -> dict[str, Any]:
    """The optional argument `dtype`."""
    return {"dtype": sketch.choice(choices)} if sketch.rarely(4) else {}


def _addends(sketch: Sketch, results: Sequence[int], kwargs: dict[str, Any], *, weighted: bool = False) -> Values:
    if sketch.is_float and sketch.rarely(3) and kwargs.get("dtype", torch.float32).is_floating_point:
        return sketch.choice((_ABOVE, _INFINITE, _SPECIAL))
    return summands(sketch, results, weighted=weighted)


def _is_whole(sketch: Sketch, kwargs: dict[str, Any]) -> bool:
    dtype = kwargs.get("dtype")
    return not (sketch.is_float if dtype is None else dtype.is_floating_point)


_SUM_DTYPES = (torch.float32, torch.float16, torch.int64, torch.int32, torch.float64, torch.int8)


@operator("aten.sum.default", "aten.sum.dim_IntList", "aten.nansum.default", dtypes=ALL)
def _sum(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dims: tuple[int, ...] = ()
    arguments: list[Any] = []
    if name == "aten.sum.dim_IntList" or (name == "aten.nansum.default" and sketch.flag()):
        dims = () if sketch.rarely() else _dims(sketch, shape)
        arguments = [dims or sketch.choice(((), None)), *_keepdim(sketch)]
    kwargs = _result_dtype(sketch, _SUM_DTYPES)
    values = _addends(sketch, _reduced(shape, dims), kwargs)
    if sketch.dtype in ("int64", "int32") and not kwargs and sketch.rarely(4):
        values = ("integers", 2**30, 2**31 - 1)  # PyTorch's sums of integers have 64 bits
    x = sketch.tensor(shape, values=values)
    sketch.call(name, x, *arguments, **kwargs)
    return sketch.recipe(reduction_length=_length(shape, dims), exact=_is_whole(sketch, kwargs))


@operator("aten.mean.default", "aten.mean.dim", dtypes=(*FLOATS, "int64", "int32", "bool"))
def _mean(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dims: tuple[int, ...] = ()
    arguments: list[Any] = []
    if name == "aten.mean.dim":
        dims = () if sketch.rarely() else _dims(sketch, shape)
        arguments = [dims or sketch.choice(((), None)), *_keepdim(sketch)]
    choices = (torch.float32, torch.float16, torch.float64)
    kwargs = _result_dtype(sketch, choices) if sketch.is_float else {"dtype": sketch.choice(choices)}
    values = _addends(sketch, _reduced(shape, dims), kwargs, weighted=True)
    if sketch.dtype != "bool" and sketch.rarely(5):
        values = ("uniform", 8192, 24576)  # a sum of a few would be beyond the numbers of float16
    sketch.call(name, sketch.tensor(shape, values=values), *arguments, **kwargs)
    return sketch.recipe(reduction_length=_length(shape, dims))


@operator("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList", dtypes=ALL)
def _count_nonzero(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    arguments: list[Any] = [_dims(sketch, shape)] if name.endswith(".dim_IntList") else []
    if not arguments and shape and sketch.flag():
        arguments = [sketch.dim(len(shape))]
    values = ("special",) if sketch.is_float else ("integers", 0, 1)
    sketch.call(name, sketch.tensor(shape, values=values), *arguments)
    return sketch.recipe(exact=True)


@operator("aten.cumsum.default", dtypes=ALL)
def _cumsum(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dim = sketch.dim(len(shape))
    kwargs = _result_dtype(sketch, _SUM_DTYPES)
    # Errors are measured against the largest partial sum.
    x = sketch.tensor(shape, values=_addends(sketch, shape, kwargs))
    sketch.call(name, x, dim, **kwargs)
    return sketch.recipe(reduction_length=shape[dim] if shape else 1, exact=_is_whole(sketch, kwargs))


# Products


def _factors(sketch: Sketch, count: int, kwargs: dict[str, Any]) -> Values:
    """Numbers whose products of `count` stay in range."""
    if not sketch.is_float:
        return ("integers", 0 if sketch.dtype == "bool" else 1, 1 if sketch.dtype == "bool" else 3)
    kinds: list[Values] = [("uniform", 0.75, 1.25)]
    if count <= 12:
        kinds += [("integers", -2, 2), ("integers", 1, 2)]
        if kwargs.get("dtype", torch.float32).is_floating_point:
            kinds.append(("special", -2, 2))
    return sketch.choice(kinds)


@operator("aten.prod.default", "aten.prod.dim_int", dtypes=ALL)
def _prod(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(largest=4)
    arguments: list[Any] = []
    dims: tuple[int, ...] = ()
    if name == "aten.prod.dim_int":
        dims = (sketch.dim(len(shape)),)
        arguments = [*dims, *_keepdim(sketch)]
    length = _length(shape, dims)
    kwargs = _result_dtype(sketch, (torch.float32, torch.float64, torch.int64, torch.int32))
    if length > 12 and not sketch.is_float and not _is_whole(sketch, kwargs):
        kwargs = {}  # out of float's range
    x = sketch.tensor(shape, values=_factors(sketch, length, kwargs))
    sketch.call(name, x, *arguments, **kwargs)
    return sketch.recipe(reduction_length=length, exact=_is_whole(sketch, kwargs))


@operator("aten.cumprod.default", dtypes=ALL)
def _cumprod(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dim = sketch.dim(len(shape))
    length = shape[dim] if shape else 1
    x = sketch.tensor(shape, values=_factors(sketch, length, {}))
    sketch.call(name, x, dim)
    return sketch.recipe(reduction_length=length, exact=not sketch.is_float)


# Extremes


def _extreme_values(sketch: Sketch, shape: Sequence[int]) -> Values:
    """Numbers with or without ties, also NaN and infinities. NaN is larger and smaller than all others."""
    if sketch.dtype == "bool":
        return ("integers", 0, 1)
    low = 0 if sketch.dtype == "uint8" else -2
    kinds: list[Values] = [("integers", low, 2)]
    if sketch.dtype not in ("int8", "uint8") or math.prod(shape) <= 128:
        kinds.insert(0, ("distinct",))
    if sketch.is_float:
        kinds += [_INFINITE, ("special",)]
    return sketch.choice(kinds)


@operator("aten.amax.default", "aten.amin.default", dtypes=ALL)
def _amax(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dims = () if sketch.rarely() else _dims(sketch, shape)
    shape = _without_empty(shape, dims)
    arguments: list[Any] = [dims, *_keepdim(sketch)]
    if not dims and sketch.flag():
        arguments = []
    sketch.call(name, sketch.tensor(shape, values=_extreme_values(sketch, shape)), *arguments)
    return sketch.recipe(exact=True)


@operator("aten.max.default", "aten.min.default", dtypes=ALL)
def _max(sketch: Sketch, name: str) -> Recipe:
    shape = _without_empty(sketch.shape(), ())
    sketch.call(name, sketch.tensor(shape, values=_extreme_values(sketch, shape)))
    return sketch.recipe(exact=True)


@operator("aten.max.dim", "aten.min.dim", dtypes=ALL)
def _max_dim(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dim = sketch.dim(len(shape))
    shape = _without_empty(shape, (dim,))
    # Of equal numbers the first is chosen (torch.max), of several NaN the first, too.
    x = sketch.tensor(shape, values=_extreme_values(sketch, shape))
    return _both(sketch, sketch.call(name, x, dim, *_keepdim(sketch)))


def _both(sketch: Sketch, result: Ref) -> Recipe:
    """A choice of the two results, in either order."""
    first, second = Ref(result.name, 0), Ref(result.name, 1)
    return sketch.recipe(*sketch.choice(((first, second), (first,), (second,), (second, first))), exact=True)


@operator("aten.aminmax.default", dtypes=ALL)
def _aminmax(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    kwargs: dict[str, Any] = {}
    if sketch.flag():
        kwargs = {"dim": sketch.dim(len(shape)), "keepdim": sketch.flag()}
    shape = _without_empty(shape, (kwargs["dim"],) if kwargs else ())
    return _both(sketch, sketch.call(name, sketch.tensor(shape, values=_extreme_values(sketch, shape)), **kwargs))


@operator("aten.argmax.default", "aten.argmin.default", dtypes=NUMBERS)
def _argmax(sketch: Sketch, name: str) -> Recipe:
    shape = () if sketch.rarely(12) else sketch.shape()
    arguments: list[Any] = []
    if not sketch.rarely(4):
        arguments = [sketch.dim(len(shape)), *_keepdim(sketch)]
    elif sketch.flag():
        arguments = [None, *_keepdim(sketch)]
    dims = tuple(arguments[:1]) if arguments[:1] != [None] else ()
    shape = _without_empty(shape, dims)
    # Of equal numbers the first is chosen (torch.argmax).
    sketch.call(name, sketch.tensor(shape, values=_extreme_values(sketch, shape)), *arguments)
    return sketch.recipe(exact=True)


@operator("aten.cummax.default", "aten.cummin.default", dtypes=ALL)
def _cummax(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    values = _extreme_values(sketch, shape)
    result = sketch.call(name, sketch.tensor(shape, values=values, layouts=False), sketch.dim(len(shape)))
    if values == ("distinct",):
        return _both(sketch, result)
    return sketch.recipe(Ref(result.name, 0), exact=True)  # which of equal numbers is taken is unspecified


@operator(
    "aten.any.default",
    "aten.any.dim",
    "aten.any.dims",
    "aten.all.default",
    "aten.all.dim",
    "aten.all.dims",
    dtypes=("bool", *FLOATS, "uint8", "int8", "int32", "int64"),
)
def _any(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    arguments: list[Any] = []
    if name.endswith(".dim"):
        arguments = [sketch.dim(len(shape)), *_keepdim(sketch)]
    elif name.endswith(".dims"):
        # An empty list means all dimensions in eager's any and none in its meta function: left out.
        arguments = [_dims(sketch, shape) or None, *_keepdim(sketch)]
        if arguments == [None] and sketch.flag():
            arguments = []
    if sketch.is_float:
        values: Values = sketch.choice((("special",), ("integers", 0, 1)))  # NaN is true
    else:
        values = sketch.choice((("integers", 0, 1), ("integers", 1, 1), ("integers", 0, 0)))
    sketch.call(name, sketch.tensor(shape, values=values), *arguments)
    return sketch.recipe(exact=True)


# Statistics and norms


_VARIANCES = ("var.default", "var.dim", "var.correction", "var_mean.correction")


@operator(
    *(f"aten.{name}" for name in _VARIANCES),
    *(f"aten.{name.replace('var', 'std')}" for name in _VARIANCES),
    dtypes=FLOATS,
)
def _var(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    overload = name.rpartition(".")[2]
    arguments: list[Any] = []
    kwargs: dict[str, Any] = {}
    dims: tuple[int, ...] = ()
    if overload != "default":
        dims = () if sketch.rarely() else _dims(sketch, shape)
        arguments = [dims or None]
    if overload == "correction":
        if not shape:
            # Of one number nothing else is left.
            kwargs["correction"] = 0
        elif sketch.flag():
            # As many as there are numbers, or more, is defined, too: x / 0.
            kwargs["correction"] = sketch.choice((0, 1, _length(shape, dims), 2, 0.5, None))
        if sketch.flag():
            kwargs["keepdim"] = sketch.flag()
    elif sketch.flag():
        arguments.append(sketch.flag())
        if overload == "dim" and sketch.flag():
            arguments.append(sketch.flag())
    # No two numbers are equal, for the variance of equal ones is 0, and rounding would change it.
    # The means beside the variances must not cancel out.
    values: Values = sketch.choice((("uniform", 0.25, 2.25), ("distinct",)))
    if "mean" in name:
        values = ("uniform", 0.25, 2.25)
    elif sketch.rarely(5):
        values = ("uniform", 0, 600)  # squares would be beyond the numbers of float16
        if name.startswith("aten.var"):
            values = ("uniform", 0, 300)
    sketch.call(name, sketch.tensor(shape, values=values, layouts=False), *arguments, **kwargs)
    return sketch.recipe(reduction_length=_length(shape, dims), depth=4)


@operator("aten.logsumexp.default", dtypes=FLOATS)
def _logsumexp(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dims = _dims(sketch, shape)
    shape = _without_empty(shape, dims)  # eager says -inf, but the exporter has no maximum of no elements
    # The result must not be 0. exp(80) and exp(-100) are out of range.
    kinds: list[Values] = [("uniform", 1, 3), ("uniform", 60, 100), ("uniform", -120, -90), _ABOVE, _BELOW, _SPECIAL]
    sketch.call(name, sketch.tensor(shape, values=sketch.choice(kinds)), dims, *_keepdim(sketch))
    return sketch.recipe(reduction_length=_length(shape, dims), depth=3)


def _norm_values(sketch: Sketch, order: float) -> Values:
    if order == 0:
        return ("integers", -1, 1)
    kinds: list[Values] = [("uniform", -3, 3), ("uniform", 0.5, 2)]
    if order == 2:
        kinds.append(("uniform", 200, 400))  # squares beyond the numbers of float16
    if order in (1, 2, math.inf, -math.inf):
        kinds += [_INFINITE, _SPECIAL]
    # A negative power of a number near 0 is large, and so is its error.
    return sketch.choice(kinds if order >= 0 or order == -math.inf else kinds[1:2])


_ORDERS = (2, 1, math.inf, 0, 3, -math.inf, 0.5, 1.5, -1)


@operator("aten.linalg_vector_norm.default", dtypes=FLOATS)
def _vector_norm(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    order = sketch.choice(_ORDERS)
    dims = () if sketch.rarely() else _dims(sketch, shape)
    if order < 0 or order == math.inf:
        shape = _without_empty(shape, dims)
    arguments: list[Any] = [order]
    if dims or sketch.flag():
        arguments += [dims or None, *_keepdim(sketch)]
    elif order == 2 and sketch.flag():
        arguments = []
    sketch.call(name, sketch.tensor(shape, values=_norm_values(sketch, order)), *arguments)
    return sketch.recipe(reduction_length=_length(shape, dims), depth=4)


@operator("aten.norm.Scalar", "aten.norm.ScalarOpt_dim", dtypes=FLOATS)
def _norm(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    order = sketch.choice(_ORDERS)
    dims: tuple[int, ...] = ()
    arguments: list[Any] = [order] if order != 2 or sketch.flag() or name != "aten.norm.Scalar" else []
    if name == "aten.norm.ScalarOpt_dim":
        if order == 2 and sketch.flag():
            arguments = [None]
        dims = _dims(sketch, shape)
        arguments += [dims, *_keepdim(sketch)]
    if order < 0 or order == math.inf:
        shape = _without_empty(shape, dims)
    sketch.call(name, sketch.tensor(shape, values=_norm_values(sketch, order)), *arguments)
    return sketch.recipe(reduction_length=_length(shape, dims), depth=4)


# Sorting


def _sorted_indices(sketch: Sketch, result: Ref, values: Values, *, stable: bool) -> Recipe:
    """The results, without the indices where those of equal numbers may come in any order."""
    if stable or values == ("distinct",):
        return _both(sketch, result)
    return sketch.recipe(Ref(result.name, 0), exact=True)


@operator("aten.sort.default", "aten.sort.stable", dtypes=ALL)
def _sort(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(largest=9)
    values = _extreme_values(sketch, shape)
    # Slices of an expanded tensor are equal to one another.
    x = sketch.tensor(shape, values=values, layouts=values != ("distinct",))
    dim, descending = sketch.dim(len(shape)), sketch.flag()
    if name == "aten.sort.stable":
        result = sketch.call(name, x, stable=True, dim=dim, descending=descending)
        return _sorted_indices(sketch, result, values, stable=True)
    arguments: list[Any] = [] if sketch.rarely() else [dim, *((descending,) if descending or sketch.flag() else ())]
    return _sorted_indices(sketch, sketch.call(name, x, *arguments), values, stable=False)


@operator("aten.argsort.stable", dtypes=ALL)
@operator("aten.argsort.default", dtypes=(*FLOATS, "int64", "int32", "int16"))  # others have too few different numbers
def _argsort(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dim, descending = sketch.dim(len(shape)), sketch.flag()
    if name == "aten.argsort.stable":
        x = sketch.tensor(shape, values=_extreme_values(sketch, shape))
        sketch.call(name, x, stable=True, dim=dim, descending=descending)
    else:
        sketch.call(name, sketch.tensor(shape, values=("distinct",), layouts=False), dim, descending)
    return sketch.recipe(exact=True)


@operator("aten.topk.default", dtypes=NUMBERS)
def _topk(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(largest=9)
    dim = sketch.dim(len(shape))
    values = _extreme_values(sketch, shape)
    x = sketch.tensor(shape, values=values, layouts=values != ("distinct",))
    count = sketch.integer(0, shape[dim]) if shape else sketch.integer(0, 1)
    if count and sketch.rarely(5):  # in any order: the k-th of all is determined
        largest = sketch.flag()
        result = sketch.call(name, x, count, dim, largest, False)
        sketch.call(f"aten.{'amin' if largest else 'amax'}.default", Ref(result.name, 0), [dim])
        return sketch.recipe(exact=True)
    arguments: list[Any] = []
    if dim in (-1, len(shape) - 1) and sketch.flag():
        pass
    else:
        arguments = [dim, *((sketch.flag(),) if sketch.flag() else ())]
    return _sorted_indices(sketch, sketch.call(name, x, count, *arguments), values, stable=False)


@operator("aten.median.default", "aten.median.dim", "aten.kthvalue.default", dtypes=NUMBERS)
def _median(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dim = sketch.dim(len(shape))
    shape = _without_empty(shape, () if name == "aten.median.default" else (dim,))
    values = _extreme_values(sketch, shape)
    x = sketch.tensor(shape, values=values, layouts=values != ("distinct",))
    if name == "aten.median.default":
        sketch.call(name, x)
        return sketch.recipe(exact=True)
    arguments: list[Any] = [dim, *_keepdim(sketch)]
    if name == "aten.kthvalue.default":
        arguments.insert(0, sketch.integer(1, shape[dim] if shape else 1))
    return _sorted_indices(sketch, sketch.call(name, x, *arguments), values, stable=False)
