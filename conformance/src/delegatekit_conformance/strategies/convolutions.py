"""Convolutions and transposed convolutions in one, two and three dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..recipe import Recipe, Ref, Values
from .registry import operator
from .sketch import Sketch
from .summands import batch, per_dim, summands, written

#: Spatial rank -> largest kernel, most channels of a group, and the most by which the input may exceed its kernel:
#: a few thousand multiplications at most.
_LIMITS = {1: (5, 4, 6), 2: (3, 3, 4), 3: (2, 2, 2)}

#: Eager itself (PyTorch 2.13, x86) ends the process for some convolutions of three dimensions in float16 and bfloat16,
#: or where tensors are not contiguous: these are not drawn.
_DTYPES = ("float32", "float16", "bfloat16", "int64")
_DTYPES_3D = ("float32", "int64")


@dataclass(frozen=True)
class _Form:
    """Sizes of one convolution, per spatial dimension where there are lists."""

    batch: list[int]
    groups: int
    inputs: int
    outputs: int
    sizes: list[int]
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (*self.batch, self.groups * self.inputs, *self.sizes)


def _form(sketch: Sketch, rank: int, *, same: bool = False, transposed: bool = False, unbatched: bool = True) -> _Form:
    largest, channels, extra = _LIMITS[rank]
    groups = sketch.choice((1, 1, 2, 3))
    # One input channel for each group, as in depthwise convolution, is a special case in most kernels.
    inputs = 1 if groups > 1 and sketch.flag() else _channels(sketch, rank, channels)
    outputs = _channels(sketch, rank, channels)
    kernel = per_dim(sketch, rank, 1, largest)
    stride = [1] * rank if same else per_dim(sketch, rank, 1, 3)
    dilation = per_dim(sketch, rank, 1, 3 if rank == 1 else 2)
    extents = [step * (taps - 1) + 1 for step, taps in zip(dilation, kernel, strict=True)]
    padding, sizes = [], []
    # Planes of several blocks of a kernel that writes each phase of the strides by itself.
    large = transposed and rank < 3 and sketch.rarely(3)
    shared = None if sketch.flag() else sketch.integer(0, max(extents))
    for extent, step in zip(extents, stride, strict=True):
        pad = sketch.integer(0, extent) if shared is None else min(shared, extent)
        size = 1 if transposed or same else max(1, extent - 2 * pad)
        size += sketch.integer(0, extra)
        if large:
            size += sketch.integer(3, 7)
        if transposed:  # the padding is taken off the result, of which one element must remain
            pad = min(pad, ((size - 1) * step + extent - 1) // 2)
        padding.append(pad)
        sizes.append(size)
    before = batch(sketch) if unbatched else [sketch.integer(1, 3)]
    return _Form(before, groups, inputs, outputs, sizes, kernel, stride, padding, dilation)


def _channels(sketch: Sketch, rank: int, most: int) -> int:
    """Up to `most`, or whole blocks: kernels that pack channels have a special path for each side that is whole."""
    return sketch.choice((4, 8)) if rank < 3 and sketch.rarely(3) else sketch.integer(1, most)


def _tensors(sketch: Sketch, form: _Form, results: tuple[int, ...], transposed: bool) -> tuple[Ref, Ref, Ref | None]:
    values: Values = summands(sketch, results)
    inputs, outputs = form.inputs, form.outputs
    shape = (form.groups * inputs, outputs) if transposed else (form.groups * outputs, inputs)
    plain = sketch.dtype == "bfloat16"
    x = sketch.tensor(form.input_shape, values=values, layouts=not plain)
    weight = sketch.tensor((*shape, *form.kernel), values=values, constant=not sketch.rarely(4), layouts=not plain)
    bias = sketch.weight((form.groups * outputs,), values=values) if sketch.flag() else None
    return x, weight, bias


def _written(sketch: Sketch, numbers: list[int]) -> list[int]:
    """Perhaps one number for all dimensions; not in half precision, where eager reads past the end of such a list."""
    return written(sketch, numbers) if sketch.dtype == "float32" else numbers


def _results(form: _Form, padding: list[int]) -> tuple[int, ...]:
    sizes = [
        (size + 2 * pad - step * (taps - 1) - 1) // jump + 1
        for size, pad, step, taps, jump in zip(
            form.sizes, padding, form.dilation, form.kernel, form.stride, strict=True
        )
    ]
    return (*form.batch, form.groups * form.outputs, *sizes)


def _length(form: _Form) -> int:
    return form.inputs * math.prod(form.kernel) + 1


def _optional(sketch: Sketch, defaults: tuple[Any, ...], *given: Any) -> list[Any]:
    """The arguments without those at the end that equal their defaults, if these are left out."""
    arguments = list(given)
    while arguments and sketch.flag() and arguments[-1] == defaults[len(arguments) - 1]:
        arguments.pop()
    return arguments


@operator("aten.conv3d.default", dtypes=_DTYPES_3D)
@operator("aten.conv1d.default", "aten.conv2d.default", dtypes=_DTYPES)
def _conv(sketch: Sketch, name: str) -> Recipe:
    rank = int(name.removeprefix("aten.conv")[0])
    form = _form(sketch, rank)
    x, weight, bias = _tensors(sketch, form, _results(form, form.padding), False)
    lists = (_written(sketch, numbers) for numbers in (form.stride, form.padding, form.dilation))
    defaults = (None, [1] * rank, [0] * rank, [1] * rank, 1)
    sketch.call(name, x, weight, *_optional(sketch, defaults, bias, *lists, form.groups))
    return sketch.recipe(reduction_length=_length(form))


@operator("aten.conv3d.padding", dtypes=_DTYPES_3D)
@operator("aten.conv1d.padding", "aten.conv2d.padding", dtypes=_DTYPES)
def _conv_padding(sketch: Sketch, name: str) -> Recipe:
    rank = int(name.removeprefix("aten.conv")[0])
    padding = sketch.choice(("valid", "same"))
    form = _form(sketch, rank, same=padding == "same")
    extents = [step * (taps - 1) for step, taps in zip(form.dilation, form.kernel, strict=True)]
    if padding == "valid":
        for index, extent in enumerate(extents):
            form.sizes[index] = max(form.sizes[index], extent + 1)
    results = _results(form, [0] * rank) if padding == "valid" else form.input_shape
    x, weight, bias = _tensors(sketch, form, results, False)
    sketch.call(name, x, weight, bias, _written(sketch, form.stride), padding, form.dilation, form.groups)
    return sketch.recipe(reduction_length=_length(form))


def _transposed(sketch: Sketch, rank: int, *, unbatched: bool = True) -> tuple[_Form, list[int], tuple[int, ...], int]:
    """The form, output padding, shape of the results and the length of the longest sum."""
    form = _form(sketch, rank, transposed=True, unbatched=unbatched)
    extra, sizes, taps = [], [], 1
    for index in range(rank):
        stride, dilation, kernel = form.stride[index], form.dilation[index], form.kernel[index]
        # PyTorch requires the output padding to be below the stride or the dilation.
        more = sketch.integer(0, max(stride, dilation) - 1) if sketch.flag() else 0
        extra.append(more)
        sizes.append((form.sizes[index] - 1) * stride - 2 * form.padding[index] + dilation * (kernel - 1) + more + 1)
        # An output gets only those taps that fall between the strides in the same way.
        phases = [tap * dilation % stride for tap in range(kernel)]
        taps *= max(map(phases.count, phases))
    return form, extra, (*form.batch, form.groups * form.outputs, *sizes), form.inputs * taps + 1


@operator("aten.conv_transpose3d.input", dtypes=_DTYPES_3D)
@operator("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", dtypes=_DTYPES)
def _conv_transpose(sketch: Sketch, name: str) -> Recipe:
    rank = int(name.removeprefix("aten.conv_transpose")[0])
    form, extra, results, length = _transposed(sketch, rank)
    x, weight, bias = _tensors(sketch, form, results, True)
    stride, padding, dilation = (_written(sketch, n) for n in (form.stride, form.padding, form.dilation))
    defaults = (None, [1] * rank, [0] * rank, [0] * rank, 1, [1] * rank)
    arguments = _optional(sketch, defaults, bias, stride, padding, extra, form.groups, dilation)
    sketch.call(name, x, weight, *arguments)
    return sketch.recipe(reduction_length=length)


@operator("aten.convolution.default", dtypes=_DTYPES)
def _convolution(sketch: Sketch, name: str) -> Recipe:
    rank = sketch.choice((2, 1) if sketch.dtype == "bfloat16" else (2, 1, 3))
    transposed = sketch.rarely(3)
    if transposed:
        form, extra, results, length = _transposed(sketch, rank, unbatched=False)
    else:
        form, extra = _form(sketch, rank, unbatched=False), [0] * rank
        results, length = _results(form, form.padding), _length(form)
    x, weight, bias = _tensors(sketch, form, results, transposed)
    stride, padding, dilation = (_written(sketch, n) for n in (form.stride, form.padding, form.dilation))
    sketch.call(name, x, weight, bias, stride, padding, dilation, transposed, extra, form.groups)
    return sketch.recipe(reduction_length=length)
