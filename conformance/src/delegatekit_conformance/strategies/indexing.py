"""Operators that read or write elements at places given by other tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from ..recipe import Recipe, Ref, Values
from .operands import computed
from .registry import operator
from .sketch import ALL, NUMBERS, Sketch
from .summands import summands

_DTYPES = (*ALL, "float64")


def _nonempty(shape: Sequence[int], dim: int) -> tuple[int, ...]:
    """The shape with at least one element along a dimension."""
    return tuple(max(1, size) if place == dim % len(shape) else size for place, size in enumerate(shape))


def _places(
    sketch: Sketch,
    shape: Sequence[int],
    size: int,
    *,
    negative: bool = False,
    dtypes: Sequence[str] = ("int64",),
    layouts: bool = True,
) -> Ref:
    """A tensor of places below `size`; with `negative`, also counted from the end."""
    values = ("integers", -size if negative and sketch.flag() else 0, size - 1)
    constant = sketch.rarely(3)
    return sketch.tensor(shape, sketch.choice(dtypes), values=values, constant=constant, layouts=layouts)


def _different_places(sketch: Sketch, shape: Sequence[int], size: int) -> Ref:
    """A tensor of places below `size`. Along dimensions of `size` or less, they are different from one another."""
    order = sketch.order(size)
    places = tuple(order[sum(index) % size] for index in itertools.product(*map(range, shape)))
    return sketch.tensor(shape, "int64", values=("literal", places), layouts=False, constant=sketch.rarely(3))


def _beside(sketch: Sketch, shape: Sequence[int], dim: int) -> tuple[int, ...]:
    """The shape of an index into a tensor: anything along `dim`, at most the tensor's own size elsewhere."""
    if not shape:
        return ()
    sizes = [size if not sketch.rarely(3) else sketch.integer(min(1, size), size) for size in shape]
    sizes[dim] = 0 if sketch.rarely(12) else sketch.integer(1, 6)
    return tuple(sizes)


# Reading


@operator("aten.gather.default", dtypes=_DTYPES)
def _gather(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dim = sketch.dim(len(shape))
    shape = _nonempty(shape, dim) if shape else ()
    x = sketch.tensor(shape, special=True)
    index = _places(sketch, _beside(sketch, shape, dim), shape[dim] if shape else 1)
    kwargs = {"sparse_grad": False} if sketch.rarely() else {}
    sketch.call(name, computed(sketch, x), dim, index, **kwargs)
    return sketch.recipe(exact=True)


@operator("aten.take_along_dim.default", dtypes=_DTYPES)
def _take_along_dim(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, 4, zeros=False)
    if sketch.rarely(4):  # into the flattened tensor
        # torch.export makes views of both, which only contiguous tensors have.
        x = sketch.tensor(shape, special=True, layouts=False)
        sketch.call(name, x, _places(sketch, sketch.shape(1, 3), math.prod(shape), layouts=False))
        return sketch.recipe(exact=True)
    x = sketch.tensor(shape, special=True)
    dim = sketch.dim(len(shape))
    sizes = [size if sketch.flag() else 1 for size in shape]  # broadcasts
    sizes[dim] = sketch.integer(1, 5)
    sketch.call(name, computed(sketch, x), _places(sketch, sizes, shape[dim]), dim)
    return sketch.recipe(exact=True)


@operator("aten.take.default", dtypes=_DTYPES)
def _take(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(0, 4, zeros=False)
    x = sketch.tensor(shape)
    sketch.call(name, x, _places(sketch, sketch.shape(0, 3), math.prod(shape), negative=True))
    return sketch.recipe(exact=True)


@operator("aten.index_select.default", dtypes=_DTYPES)
def _index_select(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dim = sketch.dim(len(shape))
    shape = _nonempty(shape, dim) if shape else ()
    x = sketch.tensor(shape, special=True)
    count = [sketch.integer(0 if sketch.rarely() else 1, 6)] if shape else sketch.choice(((), (1,)))
    index = _places(sketch, count, shape[dim] if shape else 1, dtypes=("int64", "int32"))
    sketch.call(name, computed(sketch, x), dim, index)
    return sketch.recipe(exact=True)


@operator("aten.nonzero.default", "aten.argwhere.default", dtypes=_DTYPES)
def _nonzero(sketch: Sketch, name: str) -> Recipe:
    values: Values = ("special",) if sketch.is_float and sketch.flag() else ("integers", 0, 1)
    sketch.call(name, sketch.tensor(sketch.shape(), values=values))
    return sketch.recipe(exact=True)


@operator("aten.masked_select.default", dtypes=_DTYPES)
def _masked_select(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    if 0 < math.prod(shape) < 3:
        shape = (*shape[:-1], 3)  # with fewer, torch.export does not bound the number selected
    sketch.call(name, sketch.tensor(shape, special=True), _mask(sketch, sketch.broadcast(shape)))
    return sketch.recipe(exact=True)


def _mask(sketch: Sketch, shape: Sequence[int]) -> Ref:
    return sketch.tensor(shape, "bool", constant=sketch.rarely(4))


def _indices(sketch: Sketch, shape: Sequence[int]) -> tuple[list[Ref | None], tuple[int, ...]]:
    """Tensors of places for some of the dimensions, None for others; and the shape of the selection."""
    common = sketch.shape(4, 5, largest=2) if sketch.rarely() else sketch.shape(0, 3, largest=4)
    count = sketch.integer(1, min(3, len(shape)))
    needed = sketch.integer(0, count - 1)  # at least one is no None
    indices: list[Ref | None] = []
    examples: list[Any] = []
    for dim in range(count):
        if dim != needed and sketch.rarely(3):
            indices.append(None)
            examples.append(slice(None))
            continue
        sizes = common if dim == needed else sketch.broadcast(common)
        indices.append(_places(sketch, sizes, shape[dim], negative=True, dtypes=("int64", "int64", "int32")))
        examples.append(torch.zeros(sizes, dtype=torch.int64))
    return indices, tuple(torch.zeros(tuple(shape))[tuple(examples)].shape)


def _mask_indices(sketch: Sketch, shape: Sequence[int]) -> list[Ref | None]:
    """A mask over some dimensions, perhaps with a None before it."""
    start = sketch.integer(0, len(shape) - 1) if sketch.rarely(3) else 0
    end = sketch.integer(start + 1, len(shape))
    return [*[None] * start, _mask(sketch, shape[start:end])]


@operator("aten.index.Tensor", dtypes=_DTYPES)
def _index(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, zeros=False)
    x = sketch.tensor(shape, special=True)
    indices = _mask_indices(sketch, shape) if sketch.rarely() else _indices(sketch, shape)[0]
    sketch.call(name, computed(sketch, x), indices)
    return sketch.recipe(exact=True)


@operator("aten.embedding.default", dtypes=_DTYPES)
def _embedding(sketch: Sketch, name: str) -> Recipe:
    count = sketch.integer(1, 9)
    weight = sketch.weight((count, sketch.integer(1, 6)))
    index = sketch.tensor(
        sketch.shape(0, 3), sketch.choice(("int64", "int32")), values=("integers", 0, count - 1), constant=False
    )
    # These say how gradients are made, and change no result.
    arguments: list[Any] = [sketch.integer(-1, count - 1), sketch.flag(), False] if sketch.flag() else []
    sketch.call(name, weight, index, *arguments)
    return sketch.recipe(exact=True)


@operator("aten._embedding_bag.default", "aten.embedding_bag.padding_idx", dtypes=("float32", "float16", "bfloat16"))
def _embedding_bag(sketch: Sketch, name: str) -> Recipe:
    count, features = sketch.integer(1, 6), sketch.integer(1, 5)
    mode = sketch.choice((0, 1, 2))  # sum, mean, max
    last = sketch.flag()
    length = sketch.integer(1, 7)
    bags = sketch.integer(1, 4)
    # Bags of no elements are of zeros.
    offsets = [0, *sorted(sketch.integer(0, length) for _ in range(bags - 1)), *([length] if last else [])]
    dtype = sketch.choice(("int64", "int32"))
    weight = sketch.weight((count, features), values=summands(sketch, (bags, features), weighted=True))
    # PyTorch 2.13 reads the memory of indices as if they were contiguous, and sums the wrong rows if not.
    index = sketch.tensor((length,), dtype, values=("integers", 0, count - 1), layouts=False)
    starts = sketch.tensor((len(offsets),), dtype, values=("literal", tuple(offsets)), layouts=False)
    factors = None
    if mode == 0 and sketch.flag():
        factors = sketch.tensor((length,), values=("uniform", 0.5, 2))
    padding: Any = sketch.integer(0, count - 1) if sketch.rarely(3) else -1
    if name == "aten.embedding_bag.padding_idx":
        padding = None if padding == -1 else padding
    result = sketch.call(name, weight, index, starts, False, mode, False, factors, last, padding)
    # The other results are for the gradient.
    return sketch.recipe(Ref(result.name, 0), reduction_length=length, exact=mode == 2)


# Writing


@operator("aten.scatter.src", dtypes=_DTYPES)
def _scatter(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dim = sketch.dim(len(shape))
    shape = _nonempty(shape, dim) if shape else ()
    sizes = [sketch.integer(min(1, size), size) if sketch.rarely(3) else size for size in shape]
    x = sketch.tensor(shape, special=True)
    # Which of two elements for one place is written is unspecified.
    index = _different_places(sketch, sizes, shape[dim] if shape else 1)
    source = sketch.tensor([size + sketch.integer(0, 1) for size in sizes], special=True)
    sketch.call(name, x, dim, index, source)
    return sketch.recipe(exact=True)


@operator("aten.scatter.value", dtypes=_DTYPES)
def _scatter_value(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dim = sketch.dim(len(shape))
    shape = _nonempty(shape, dim) if shape else ()
    x = sketch.tensor(shape, special=True)
    index = _places(sketch, _beside(sketch, shape, dim), shape[dim] if shape else 1)
    value = sketch.choice((math.inf, math.nan, 0.1)) if sketch.is_float and sketch.rarely() else sketch.number()
    sketch.call(name, x, dim, index, value)
    return sketch.recipe(exact=True)


def _scattered(sketch: Sketch) -> tuple[tuple[int, ...], int, Ref, tuple[int, ...]]:
    """Shape, dimension, places (also several times the same) and the shape of the scattered values."""
    shape = sketch.shape()
    dim = sketch.dim(len(shape))
    shape = _nonempty(shape, dim) if shape else ()
    sizes = _beside(sketch, shape, dim)
    index = _places(sketch, sizes, shape[dim] if shape else 1)
    return shape, dim, index, tuple(size + sketch.integer(0, 1) for size in sizes)


def _extent(sizes: Sequence[int], dim: int) -> int:
    return sizes[dim] if sizes else 1


@operator("aten.scatter_add.default", dtypes=ALL)
def _scatter_add(sketch: Sketch, name: str) -> Recipe:
    shape, dim, index, sizes = _scattered(sketch)
    values = summands(sketch, shape)
    x = sketch.tensor(shape, values=values)
    sketch.call(name, x, dim, index, sketch.tensor(sizes, values=values))
    return sketch.recipe(reduction_length=_extent(sizes, dim) + 1, exact=not sketch.is_float)


@operator("aten.scatter_reduce.two", dtypes=NUMBERS)
def _scatter_reduce(sketch: Sketch, name: str) -> Recipe:
    shape, dim, index, sizes = _scattered(sketch)
    reduce = sketch.choice(("sum", "prod", "mean", "amax", "amin"))
    values = summands(sketch, shape, weighted=reduce == "mean")
    if reduce == "prod":
        values = ("uniform", 0.75, 1.25) if sketch.is_float and sketch.flag() else ("integers", 1, 2)
    elif reduce in ("amax", "amin") and sketch.is_float and sketch.flag():
        values = ("special",)
    x = sketch.tensor(shape, values=values)
    source = sketch.tensor(sizes, values=values)
    kwargs = {} if sketch.rarely(3) else {"include_self": sketch.rarely(3)}
    sketch.call(name, x, dim, index, source, reduce, **kwargs)
    exact = reduce in ("amax", "amin") or not sketch.is_float
    return sketch.recipe(reduction_length=_extent(sizes, dim) + 1, depth=2, exact=exact)


@operator("aten.scatter.reduce", "aten.scatter.value_reduce", dtypes=NUMBERS)
def _scatter_with(sketch: Sketch, name: str) -> Recipe:
    shape, dim, index, sizes = _scattered(sketch)
    product = sketch.flag()
    values: Values = ("integers", 1, 2) if product else summands(sketch, shape)
    x = sketch.tensor(shape, values=values)
    source = sketch.tensor(sizes, values=values) if name == "aten.scatter.reduce" else sketch.choice((1, 2))
    sketch.call(name, x, dim, index, source, reduce="multiply" if product else "add")
    return sketch.recipe(reduction_length=_extent(sizes, dim) + 1, depth=2, exact=not sketch.is_float)


@operator("aten.put.default", dtypes=(*NUMBERS, "bool"))
def _put(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(zeros=False)
    places = math.prod(shape)
    values = summands(sketch, shape)
    x = sketch.tensor(shape, values=values)
    sizes = (sketch.integer(0, min(places, 6)),)
    # Booleans are no numbers to add.
    if sketch.dtype != "bool" and sketch.flag():
        index = _places(sketch, sizes, places)
        accumulate: bool | None = True
    else:
        # Which of two elements for one place is written is unspecified.
        index = _different_places(sketch, sizes, places)
        accumulate = sketch.choice((None, False))
    source = sketch.tensor(sizes, values=values)
    sketch.call(name, x, index, source, *([] if accumulate is None else [accumulate]))
    return sketch.recipe(reduction_length=sizes[0] + 1, exact=not sketch.is_float)


@operator("aten.index_put.default", dtypes=_DTYPES)
def _index_put(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, 4, zeros=False)
    form = sketch.choice(("accumulate", "same", "different", "mask"))
    values = summands(sketch, shape)
    x = sketch.tensor(shape, values=values)
    if form == "mask":
        indices = _mask_indices(sketch, shape)
        accumulate = sketch.flag()
        sketch.call(name, x, indices, sketch.tensor((), values=values), *([accumulate] if accumulate else []))
    elif form == "different":
        # Which of two elements for one place is written is unspecified.
        count = sketch.integer(0, shape[0])
        index = _different_places(sketch, (count,), shape[0])
        sketch.call(name, x, [index], sketch.tensor(sketch.broadcast((count, *shape[1:])), values=values))
    else:
        indices, named = _indices(sketch, shape)
        if form == "same":
            values = ("integers", 1, 1)
        source = sketch.tensor(sketch.broadcast(named), values=values)
        sketch.call(name, x, indices, source, *([True] if form == "accumulate" else sketch.choice(((), (False,)))))
    return sketch.recipe(reduction_length=64 if form == "accumulate" else 1, exact=not sketch.is_float)


@operator("aten.index_add.default", dtypes=ALL)
def _index_add(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    dim = sketch.dim(len(shape))
    shape = _nonempty(shape, dim)
    count = 0 if sketch.rarely(12) else sketch.integer(1, 6)
    sizes = list(shape)
    sizes[dim] = count
    values = summands(sketch, shape)
    x = sketch.tensor(shape, values=values)
    index = _places(sketch, (count,), shape[dim], dtypes=("int64", "int32"))
    kwargs = {"alpha": sketch.choice((2, 1) if not sketch.is_float else (2, 0.5, 1))} if sketch.flag() else {}
    if sketch.dtype == "bool":
        kwargs = {}
    sketch.call(name, x, dim, index, sketch.tensor(sizes, values=values), **kwargs)
    return sketch.recipe(reduction_length=count + 1, exact=not sketch.is_float)


@operator("aten.index_copy.default", dtypes=_DTYPES)
def _index_copy(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, 4)
    dim = sketch.dim(len(shape))
    shape = _nonempty(shape, dim)
    sizes = list(shape)
    sizes[dim] = sketch.integer(0, shape[dim])
    x = sketch.tensor(shape, special=True)
    index = _different_places(sketch, (sizes[dim],), shape[dim])
    sketch.call(name, x, dim, index, sketch.tensor(sizes, special=True))
    return sketch.recipe(exact=True)


@operator("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor", dtypes=_DTYPES)
def _index_fill(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    dim = sketch.dim(len(shape))
    shape = _nonempty(shape, dim)
    x = sketch.tensor(shape, special=True)
    index = _places(sketch, (sketch.integer(0 if sketch.rarely() else 1, 4),), shape[dim])
    sketch.call(name, x, dim, index, sketch.number() if name.endswith("_Scalar") else sketch.tensor(()))
    return sketch.recipe(exact=True)


@operator("aten.masked_scatter.default", dtypes=_DTYPES)
def _masked_scatter(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    x = sketch.tensor(shape, special=True)
    mask = _mask(sketch, sketch.broadcast(shape))
    source = sketch.tensor(shape if sketch.flag() else (math.prod(shape) + sketch.integer(0, 2),), special=True)
    sketch.call(name, x, mask, source)
    return sketch.recipe(exact=True)


@operator("aten.select_scatter.default", dtypes=_DTYPES)
def _select_scatter(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    dim = sketch.dim(len(shape))
    shape = _nonempty(shape, dim)
    place = dim % len(shape)
    x = sketch.tensor(shape, special=True)
    source = sketch.tensor((*shape[:place], *shape[place + 1 :]), special=True)
    sketch.call(name, x, source, dim, sketch.integer(-shape[dim], shape[dim] - 1))
    return sketch.recipe(exact=True)


@operator("aten.slice_scatter.default", dtypes=_DTYPES)
def _slice_scatter(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    dim = sketch.dim(len(shape))
    size = shape[dim]
    start = sketch.choice((None, -size - 2)) if sketch.rarely() else sketch.integer(-size, size)
    end = sketch.choice((None, 2**63 - 1, size + 3)) if sketch.rarely(3) else sketch.integer(-size, size)
    step = sketch.integer(1, 3)
    sizes = list(shape)
    sizes[dim] = len(range(size)[start:end:step])
    x = sketch.tensor(shape, special=True)
    sketch.call(name, x, sketch.tensor(sizes, special=True), dim, start, end, step)
    return sketch.recipe(exact=True)


@operator("aten.diagonal_scatter.default", dtypes=_DTYPES)
def _diagonal_scatter(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(2, 4)
    offset = sketch.integer(-2, 2)
    first, second = sketch.dims(len(shape), at_least=2)[:2]
    sizes = torch.zeros(shape).diagonal(offset, first, second).shape
    x = sketch.tensor(shape, special=True)
    sketch.call(name, x, sketch.tensor(sizes, special=True), offset, first, second)
    return sketch.recipe(exact=True)
