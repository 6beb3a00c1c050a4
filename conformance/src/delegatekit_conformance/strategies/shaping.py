"""Operators that move elements without computing: views, copies of parts, joining, repeating and padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..recipe import Recipe, Ref
from .operands import computed, exact_step
from .registry import operator
from .sketch import ALL, FLOATS, NUMBERS, Sketch

#: Moving elements is the same for all dtypes; these represent the sizes of elements.
_DTYPES = (*ALL, "float64")


def _negative(sketch: Sketch, dim: int, rank: int) -> int:
    """The dimension, perhaps counted from the end."""
    return dim - rank if sketch.flag() else dim


def _moved(sketch: Sketch, *results: Ref, source: Ref | None = None) -> Recipe:
    """The recipe, whose results may be returned twice, beside their sources, or used in a further step."""
    form = sketch.integer(0, 6)
    outputs = list(results)
    if form == 4:
        outputs.append(results[0])
    elif form == 5 and source is not None:
        outputs.insert(sketch.integer(0, 1), source)
    elif form == 6:
        outputs = [exact_step(sketch, results[-1]), *(results[:1] if sketch.flag() else ())]
    elif form >= 2 and len(results) > 1:
        outputs = [results[index] for index in sketch.dims(len(results))]
    return sketch.recipe(*outputs, exact=True)


def _pieces(result: Ref, count: int) -> list[Ref]:
    return [Ref(result.name, index) for index in range(count)]


# Views


def _factored(sketch: Sketch, size: int, count: int) -> list[int]:
    """`count` sizes whose product is `size`."""
    sizes = []
    for _ in range(count - 1):
        divisors = [part for part in range(1, size + 1) if size % part == 0] if size else [0, 1, 2]
        sizes.append(sketch.choice(divisors))
        size = size // sizes[-1] if sizes[-1] else 1
    return [*sizes, size]


def _other_shape(sketch: Sketch, shape: Sequence[int]) -> list[int]:
    """Another shape for as many elements, perhaps with a -1 in it."""
    count = math.prod(shape)
    rank = sketch.integer(0 if count == 1 else 1, 5)
    if not rank:
        return []
    sizes = _factored(sketch, count, rank)
    sizes = [sizes[place] for place in sketch.dims(rank, at_least=rank)]
    if count and sketch.flag():
        sizes[sketch.integer(0, rank - 1)] = -1
    return sizes


@operator("aten.view.default", "aten.reshape.default", dtypes=_DTYPES)
def _view(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    # A view of other than contiguous elements may not exist.
    source = sketch.tensor(shape, layouts=name == "aten.reshape.default")
    x = computed(sketch, source)
    sizes = list(shape) if sketch.rarely() else _other_shape(sketch, shape)
    return _moved(sketch, sketch.call(name, x, sizes), source=source)


@operator("aten.flatten.using_ints", dtypes=_DTYPES)
def _flatten(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    rank = max(len(shape), 1)
    start = sketch.integer(0, rank - 1)
    end = sketch.integer(start, rank - 1)
    x = sketch.tensor(shape)
    arguments = [_negative(sketch, start, rank), _negative(sketch, end, rank)]
    if sketch.rarely():
        arguments = []
    return _moved(sketch, sketch.call(name, computed(sketch, x), *arguments), source=x)


@operator("aten.unflatten.int", dtypes=_DTYPES)
def _unflatten(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, 4)
    dim = sketch.integer(0, len(shape) - 1)
    if not shape[dim]:
        shape = (*shape[:dim], 4, *shape[dim + 1 :])
    sizes = _factored(sketch, shape[dim], sketch.integer(1, 2 if len(shape) == 4 else 3))
    if 0 not in shape and sketch.flag():
        sizes[sketch.integer(0, len(sizes) - 1)] = -1
    x = sketch.tensor(shape)
    return _moved(sketch, sketch.call(name, x, _negative(sketch, dim, len(shape)), sizes), source=x)


@operator("aten.expand.default", "aten.broadcast_to.default", dtypes=_DTYPES)
def _expand(sketch: Sketch, name: str) -> Recipe:
    wide = list(sketch.shape(largest=4))
    start = sketch.integer(0, len(wide))
    shape = [1 if sketch.flag() else size for size in wide[start:]]
    for dim, size in enumerate(shape):
        if sketch.rarely(4):
            wide[start + dim] = -1  # as it is
        elif size == 0:
            wide[start + dim] = 0
    source = sketch.tensor(shape)
    return _moved(sketch, sketch.call(name, computed(sketch, source), wide), source=source)


@operator("aten.permute.default", dtypes=_DTYPES)
def _permute(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    dims = sketch.dims(len(shape), at_least=len(shape))
    if len(shape) == 4 and sketch.flag():
        dims = sketch.choice(((0, 2, 3, 1), (0, 3, 1, 2)))
    x = sketch.tensor(shape)
    return _moved(sketch, sketch.call(name, computed(sketch, x), dims), source=x)


@operator("aten.transpose.int", "aten.swapaxes.default", dtypes=_DTYPES)
def _transpose(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    x = sketch.tensor(shape)
    dims = sketch.dim(len(shape)), sketch.dim(len(shape))
    return _moved(sketch, sketch.call(name, computed(sketch, x), *dims), source=x)


@operator("aten.t.default", dtypes=_DTYPES)
def _t(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(0, 2))
    return _moved(sketch, sketch.call(name, computed(sketch, x)), source=x)


@operator("aten.movedim.int", "aten.movedim.intlist", dtypes=_DTYPES)
def _movedim(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    rank = len(shape)
    x = sketch.tensor(shape)
    source: Any = sketch.dim(rank)
    destination: Any = sketch.dim(rank)
    if name == "aten.movedim.intlist":
        source = sketch.dims(rank)
        destination = sketch.dims(rank, at_least=rank)[: len(source)]
    return _moved(sketch, sketch.call(name, x, source, destination), source=x)


@operator("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", dtypes=_DTYPES)
def _squeeze(sketch: Sketch, name: str) -> Recipe:
    shape = [1 if sketch.flag() else size for size in sketch.shape()]
    x = sketch.tensor(shape)
    arguments: list[Any] = []
    if name.endswith(".dim"):
        arguments = [sketch.dim(len(shape))]
    elif name.endswith(".dims"):
        arguments = [sketch.dims(len(shape), at_least=0)]
    return _moved(sketch, sketch.call(name, computed(sketch, x), *arguments), source=x)


@operator("aten.unsqueeze.default", dtypes=_DTYPES)
def _unsqueeze(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(0, 4)
    x = sketch.tensor(shape)
    return _moved(sketch, sketch.call(name, computed(sketch, x), sketch.dim(len(shape) + 1)), source=x)


@operator("aten.alias.default", "aten.detach.default", "aten.contiguous.default", "aten.clone.default", dtypes=_DTYPES)
def _same(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    x = sketch.tensor(shape)
    kwargs: dict[str, Any] = {}
    if name in ("aten.contiguous.default", "aten.clone.default") and sketch.flag():
        forms = [torch.contiguous_format]
        if len(shape) == 4:
            forms.append(torch.channels_last)
        if name == "aten.clone.default":
            forms.append(torch.preserve_format)
        kwargs["memory_format"] = sketch.choice(forms)
    return _moved(sketch, sketch.call(name, computed(sketch, x), **kwargs), source=x)


@operator("aten.as_strided.default", dtypes=_DTYPES)
def _as_strided(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, 3)
    count = math.prod(shape)
    sizes: list[int] = []
    strides: list[int] = []
    offset = sketch.integer(0, max(0, count - 1))
    room = count - 1 - offset  # how far the last element may be from the first
    for _ in range(sketch.integer(0, 3)):
        stride = sketch.integer(0, 4)  # rows may overlap
        size = sketch.integer(1, 4)
        while stride and (size - 1) * stride > max(room, 0):
            size -= 1
        room -= (size - 1) * stride
        sizes.append(size)
        strides.append(stride)
    if not count:
        sizes, strides = [*sizes, 0], [*strides, 1]
    x = sketch.tensor(shape, layouts=False)
    # Without an offset the one of the view counts, which is 0.
    arguments = [offset] if offset or sketch.flag() else []
    return _moved(sketch, sketch.call(name, x, sizes, strides, *arguments), source=x)


@operator("aten.diagonal.default", dtypes=_DTYPES)
def _diagonal(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(2)
    first, second = sketch.dims(len(shape), at_least=2)[:2]
    arguments = [sketch.integer(-3, 3), first, second][: 3 if len(shape) > 2 else sketch.integer(0, 3)]
    if len(arguments) == 2:
        arguments = arguments[:1]
    x = sketch.tensor(shape)
    return _moved(sketch, sketch.call(name, computed(sketch, x), *arguments), source=x)


@operator("aten.unfold.default", dtypes=_DTYPES)
def _unfold(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(0, 4, zeros=False)
    dim = sketch.dim(len(shape))
    size = sketch.integer(1, shape[dim] if shape else 1)
    x = sketch.tensor(shape)
    return _moved(sketch, sketch.call(name, x, dim, size, sketch.integer(1, 3)), source=x)


# Parts


def _bound(sketch: Sketch, size: int) -> int | None:
    """A place to begin or to end: inside, outside, counted from the end, or none."""
    if sketch.rarely(5):
        return sketch.choice((None, 2**63 - 1, size + 3, -size - 3))
    return sketch.integer(-size, size)


@operator("aten.slice.Tensor", dtypes=_DTYPES)
def _slice(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    dim = sketch.dim(len(shape))
    size = shape[dim]
    start, end, step = _bound(sketch, size), _bound(sketch, size), sketch.integer(1, 3)
    if start == 2**63 - 1:
        start = size  # torch.export does not take an endless start
    arguments = [dim, start, end, step]
    while len(arguments) > 1 and arguments[-1] in (1, None) and sketch.flag():
        arguments.pop()
    x = sketch.tensor(shape)
    return _moved(sketch, sketch.call(name, computed(sketch, x), *arguments), source=x)


@operator("aten.select.int", dtypes=_DTYPES)
def _select(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    dim = sketch.dim(len(shape))
    size = max(1, shape[dim])
    shape = tuple(size if place == dim % len(shape) else extent for place, extent in enumerate(shape))
    x = sketch.tensor(shape)
    return _moved(sketch, sketch.call(name, computed(sketch, x), dim, sketch.integer(-size, size - 1)), source=x)


@operator("aten.narrow.default", dtypes=_DTYPES)
def _narrow(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    dim = sketch.dim(len(shape))
    start = sketch.integer(0, shape[dim])
    length = sketch.integer(0, shape[dim] - start)
    if start and start < shape[dim] and sketch.flag():
        start -= shape[dim]
    x = sketch.tensor(shape)
    return _moved(sketch, sketch.call(name, x, dim, start, length), source=x)


@operator("aten.split.Tensor", "aten.split.sizes", "aten.split_with_sizes.default", dtypes=_DTYPES)
def _split(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    dim = sketch.dim(len(shape))
    size = shape[dim]
    x = sketch.tensor(shape)
    part: Any
    if name == "aten.split.Tensor":
        part = sketch.integer(1 if size else 0, size + 1)  # of nothing, there is one piece
        count = -(-size // part) if size else 1
    else:
        part = _parts(sketch, size)
        count = len(part)
    result = sketch.call(name, computed(sketch, x), part, dim)
    return _moved(sketch, *_pieces(result, count), source=x)


def _parts(sketch: Sketch, size: int) -> list[int]:
    """Sizes that add up to the size; some may be 0."""
    parts: list[int] = []
    while size and len(parts) < 3:
        parts.append(sketch.integer(0, size))
        size -= parts[-1]
    return [*parts, size]


@operator("aten.chunk.default", dtypes=_DTYPES)
def _chunk(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    dim = sketch.dim(len(shape))
    chunks = sketch.integer(1, 5)
    step = -(-shape[dim] // chunks)
    x = sketch.tensor(shape)
    result = sketch.call(name, computed(sketch, x), chunks, dim)
    return _moved(sketch, *_pieces(result, -(-shape[dim] // step) if step else chunks), source=x)


@operator("aten.unbind.int", dtypes=_DTYPES)
def _unbind(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, largest=4)
    dim = sketch.dim(len(shape))
    shape = tuple(max(1, size) if place == dim % len(shape) else size for place, size in enumerate(shape))
    x = sketch.tensor(shape)
    return _moved(sketch, *_pieces(sketch.call(name, computed(sketch, x), dim), shape[dim]), source=x)


@operator("aten.tensor_split.sections", "aten.tensor_split.indices", dtypes=_DTYPES)
def _tensor_split(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    dim = sketch.dim(len(shape))
    x = sketch.tensor(shape)
    if name == "aten.tensor_split.sections":
        count = sketch.integer(1, 5)
        result = sketch.call(name, x, count, dim)
    else:
        places = sorted(sketch.integer(0, shape[dim]) for _ in range(sketch.integer(0, 3)))
        count = len(places) + 1
        result = sketch.call(name, x, places, dim)
    return _moved(sketch, *_pieces(result, count), source=x)


@operator("aten.tril.default", "aten.triu.default", dtypes=_DTYPES)
def _tril(sketch: Sketch, name: str) -> Recipe:
    x = sketch.tensor(sketch.shape(2), special=True)
    sketch.call(name, x, *([sketch.integer(-4, 4)] if sketch.flag() else []))
    return sketch.recipe(exact=True)


# Joining


@operator("aten.cat.default", "aten.concat.default", dtypes=_DTYPES)
def _cat(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1)
    dim = sketch.dim(len(shape))
    place = dim % len(shape)
    tensors: list[Ref] = []
    for _ in range(sketch.integer(1, 7 if sketch.rarely() else 4)):
        if tensors and sketch.rarely():
            tensors.append(tensors[0])  # the same one twice
        elif sketch.rarely(10):
            tensors.append(sketch.tensor((0,)))  # of whatever rank the others are, it is left out
        else:
            size = 0 if sketch.rarely(8) else sketch.integer(1, 4)
            part = (*shape[:place], size, *shape[place + 1 :])
            dtype = sketch.choice(("float32", "int32", "uint8", "bool")) if sketch.rarely(10) else sketch.dtype
            x = sketch.tensor(part, dtype)
            tensors.append(computed(sketch, x) if dtype == sketch.dtype else x)
    result = sketch.call(name, tensors, *([] if dim == 0 and sketch.flag() else [dim]))
    return _moved(sketch, result, source=tensors[0])


@operator("aten.stack.default", dtypes=_DTYPES)
def _stack(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(0, 4)
    tensors = [sketch.tensor(shape) for _ in range(sketch.integer(1, 4))]
    tensors = [sketch.choice(tensors) if sketch.rarely() else x for x in tensors]
    result = sketch.call(name, tensors, sketch.dim(len(shape) + 1))
    return _moved(sketch, result, source=tensors[0])


# Orders and repetitions


@operator("aten.flip.default", dtypes=_DTYPES)
def _flip(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    x = sketch.tensor(shape)
    # PyTorch lets a tensor without dimensions have one.
    dims = sketch.dims(len(shape), at_least=0) if shape else sketch.choice(((), (0,), (-1,)))
    sketch.call(name, computed(sketch, x), dims)
    return sketch.recipe(exact=True)


@operator("aten.roll.default", dtypes=_DTYPES)
def _roll(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    x = sketch.tensor(shape)
    if not shape or sketch.rarely(3):  # the flattened tensor
        sketch.call(name, x, [sketch.integer(-7, 7)])
    else:
        dims = sketch.dims(len(shape))
        sketch.call(name, x, [sketch.integer(-7, 7) for _ in dims], dims)
    return sketch.recipe(exact=True)


@operator("aten.rot90.default", dtypes=_DTYPES)
def _rot90(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(2)
    sketch.call(name, sketch.tensor(shape), sketch.integer(-2, 4), sketch.dims(len(shape), at_least=2)[:2])
    return sketch.recipe(exact=True)


@operator("aten.repeat.default", "aten.tile.default", dtypes=_DTYPES)
def _repeat(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(0, 4, largest=4)
    rank = len(shape)
    least = rank if name == "aten.repeat.default" else 0  # tile takes fewer numbers than dimensions
    repeats = [0 if sketch.rarely(20) else sketch.integer(1, 3) for _ in range(sketch.integer(least, max(rank, 4)))]
    return _moved(sketch, sketch.call(name, sketch.tensor(shape), repeats))


@operator("aten.repeat_interleave.self_int", dtypes=_DTYPES)
def _repeat_interleave(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(0, 4)
    x = sketch.tensor(shape)
    sketch.call(name, x, sketch.integer(1, 3), *([sketch.dim(len(shape))] if shape and sketch.flag() else []))
    return sketch.recipe(exact=True)


@operator("aten.repeat_interleave.self_Tensor", dtypes=_DTYPES)
def _repeat_interleave_tensor(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, 4)
    dim = sketch.dim(len(shape))
    counts = [sketch.integer(0, 3) for _ in range(shape[dim])]
    x = sketch.tensor(shape)
    repeats = sketch.tensor((len(counts),), "int64", values=("literal", tuple(counts)), layouts=False)
    sketch.call(name, x, repeats, dim, output_size=sum(counts))
    return sketch.recipe(exact=True)


# Padding


@operator("aten.constant_pad_nd.default", dtypes=_DTYPES)
def _constant_pad(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    pads: list[int] = []
    for size in reversed(shape[len(shape) - sketch.integer(0, len(shape)) :]):
        # A negative pad takes elements away: often some, rarely all.
        if size > 1 and sketch.choice((False, False, True)):
            amounts = [-sketch.integer(1, size - 1), sketch.integer(0, 3)]
            pads += amounts if sketch.flag() else amounts[::-1]
            continue
        before = -sketch.integer(0, size) if sketch.rarely() else sketch.integer(0, 3)
        after = -sketch.integer(0, min(size, size + before)) if sketch.rarely() else sketch.integer(0, 3)
        pads += [before, after]
    x = sketch.tensor(shape, special=True)
    values = [sketch.number()]
    if sketch.is_float:
        values.append(sketch.choice((0.1, math.inf, -math.inf, math.nan)))
    elif sketch.dtype in ("int32", "int64"):
        values.append(sketch.choice((-(2**31), 2**31 - 1)))
    arguments = [sketch.choice(values)] if sketch.flag() else []
    sketch.call(name, computed(sketch, x), pads, *arguments)
    return sketch.recipe(exact=True)


_PAD_RANKS = (1, 2, 3)


@operator(*(f"aten.reflection_pad{rank}d.default" for rank in _PAD_RANKS), dtypes=(*FLOATS, "int64", "int8", "uint8"))
@operator(*(f"aten.replication_pad{rank}d.default" for rank in _PAD_RANKS), dtypes=(*FLOATS, "int64", "int8", "uint8"))
def _edge_pad(sketch: Sketch, name: str) -> Recipe:
    rank = int(name.partition("_pad")[2][0])
    sizes = [sketch.integer(1, 5 if rank < 3 else 3) for _ in range(rank)]
    pads: list[int] = []
    for size in reversed(sizes):
        if size > 1 and sketch.rarely(4):  # a negative pad takes elements away
            pads += sketch.choice(((-1, 0), (0, -1), (-1, 1 if size > 2 or "replication" in name else 0)))
            continue
        most = size - 1 if "reflection" in name else 4
        pads += [sketch.integer(0, most), sketch.integer(0, most)]
    outer = [sketch.integer(1, 3)]
    if sketch.flag():
        outer.insert(0, sketch.integer(1, 2))
    sketch.call(name, computed(sketch, sketch.tensor((*outer, *sizes), special=True)), pads)
    return sketch.recipe(exact=True)


@operator("aten.pad.default", dtypes=FLOATS)
def _pad(sketch: Sketch, name: str) -> Recipe:
    mode = sketch.choice(("constant", "reflect", "replicate", "circular"))
    rank = sketch.integer(1, 3)
    sizes = [sketch.integer(1, 4) for _ in range(rank)]
    pads: list[int] = []
    for size in reversed(sizes):
        most = {"reflect": size - 1, "circular": size}.get(mode, 3)
        pads += [sketch.integer(0, most), sketch.integer(0, most)]
    x = sketch.tensor((sketch.integer(1, 2), sketch.integer(1, 3), *sizes))
    value = [sketch.number()] if mode == "constant" and sketch.flag() else []
    sketch.call(name, x, pads, *([] if mode == "constant" and not value else [mode]), *value)
    return sketch.recipe(exact=True)


# Pixels, columns and diagonals


@operator("aten.pixel_shuffle.default", "aten.pixel_unshuffle.default", dtypes=_DTYPES)
def _pixel_shuffle(sketch: Sketch, name: str) -> Recipe:
    factor = sketch.integer(1, 3)
    channels, height, width = (sketch.integer(1, 3) for _ in range(3))
    if name == "aten.pixel_shuffle.default":
        channels *= factor**2
    else:
        height, width = height * factor, width * factor
    outer = [sketch.integer(1, 2) for _ in range(sketch.integer(0, 2))]
    # torch.export fails on channels_last in three dimensions.
    x = sketch.tensor((*outer, channels, height, width), layouts=len(outer) < 2)
    sketch.call(name, computed(sketch, x), factor)
    return sketch.recipe(exact=True)


@operator("aten.channel_shuffle.default", dtypes=_DTYPES)
def _channel_shuffle(sketch: Sketch, name: str) -> Recipe:
    groups = sketch.integer(1, 3)
    shape = (sketch.integer(1, 2), groups * sketch.integer(1, 3), sketch.integer(1, 4), sketch.integer(1, 4))
    sketch.call(name, sketch.tensor(shape), groups)
    return sketch.recipe(exact=True)


def _windows(sketch: Sketch) -> tuple[list[int], list[int], list[int], list[int], list[int], int]:
    """Sizes of images and windows, dilation, padding, stride; and the number of windows."""
    kernel = [sketch.integer(1, 3), sketch.integer(1, 3)]
    dilation = [sketch.integer(1, 2), sketch.integer(1, 2)]
    padding = [sketch.integer(0, 2), sketch.integer(0, 2)]
    stride = [sketch.integer(1, 3), sketch.integer(1, 3)]
    sizes = []
    windows = 1
    for taps, step, pad, jump in zip(kernel, dilation, padding, stride, strict=True):
        extent = step * (taps - 1) + 1
        sizes.append(max(1, extent - 2 * pad) + sketch.integer(0, 3))
        windows *= (sizes[-1] + 2 * pad - extent) // jump + 1
    return sizes, kernel, dilation, padding, stride, windows


@operator("aten.im2col.default", dtypes=FLOATS)
def _im2col(sketch: Sketch, name: str) -> Recipe:
    sizes, kernel, dilation, padding, stride, _ = _windows(sketch)
    outer = [sketch.integer(1, 2)] if not sketch.rarely(3) else []
    x = sketch.tensor((*outer, sketch.integer(1, 3), *sizes))
    sketch.call(name, x, kernel, dilation, padding, stride)
    return sketch.recipe(exact=True)


@operator("aten.col2im.default", dtypes=FLOATS)
def _col2im(sketch: Sketch, name: str) -> Recipe:
    sizes, kernel, dilation, padding, stride, windows = _windows(sketch)
    outer = [sketch.integer(1, 2)] if not sketch.rarely(3) else []
    values = ("uniform", 0.25, 1.25) if sketch.flag() else ("integers", -3, 3)
    x = sketch.tensor((*outer, sketch.integer(1, 3) * math.prod(kernel), windows), values=values)
    sketch.call(name, x, sizes, kernel, dilation, padding, stride)
    return sketch.recipe(reduction_length=math.prod(kernel))


@operator("aten.diag_embed.default", dtypes=_DTYPES)
def _diag_embed(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, 3, largest=4)
    first, second = sketch.dims(len(shape) + 1, at_least=2)[:2]
    sketch.call(name, sketch.tensor(shape), sketch.integer(-2, 2), first, second)
    return sketch.recipe(exact=True)


@operator("aten.diag.default", dtypes=_DTYPES)
def _diag(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, 2)
    sketch.call(name, sketch.tensor(shape), sketch.integer(-2, 2))
    return sketch.recipe(exact=True)


@operator("aten.meshgrid.indexing", dtypes=NUMBERS)
def _meshgrid(sketch: Sketch, name: str) -> Recipe:
    tensors = [sketch.tensor((sketch.integer(1, 3),)) for _ in range(sketch.integer(1, 3))]
    result = sketch.call(name, tensors, indexing=sketch.choice(("ij", "xy")))
    return _moved(sketch, *_pieces(result, len(tensors)))
