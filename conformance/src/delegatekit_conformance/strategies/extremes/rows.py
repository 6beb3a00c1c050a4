"""Extreme examples, written out: numbers far from zero in norms, sums beyond float16, many groups, long tables.

No change of sizes or numbers makes them of an operator's strategy; nearly each states why it is determined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...recipe import Recipe, Ref, Values
from ..elementwise import FUNCTIONS, STEEP
from ..sketch import FLOATS
from ..summands import summands
from .changing import changing
from .determined import is_determined
from .sketch import ENDS, ROWS, HurtfulSketch

Draw: TypeAlias = Callable[[HurtfulSketch, str], Recipe]


@dataclass(frozen=True)
class Row:
    """One way to draw an example of an operator, for some dtypes."""

    draw: Draw
    dtypes: tuple[str, ...]


_rows: dict[str, list[Row]] = {}


def rows_of(operator: str, dtype: str) -> Sequence[Draw]:
    """The written examples of an operator for a dtype."""
    return [row.draw for row in _rows.get(operator, ()) if dtype in row.dtypes]


def row(*operators: str, dtypes: Sequence[str] = ("float32",)) -> Callable[[Draw], Draw]:
    """Register a function that draws an example of each of these operators."""

    def register(draw: Draw) -> Draw:
        for name in operators:
            _rows.setdefault(name, []).append(Row(draw, tuple(dtypes)))
        return draw

    return register


#: Whole numbers about 10,000: their sums are exact in float32, those of their squares are not.
_FAR: Values = ("integers", 9997, 10003)
#: Whole numbers about 64, for norms. A mean may be off by some roundings, which remain in the difference: of
#: numbers as far as those above, a norm would not be determined.
_OFF: Values = ("integers", 61, 67)
#: Numbers of one sign; the sum of a few thousand is beyond float16, and their mean is small.
_MANY: Values = ("among", (5.0, 6.0, 7.0, 8.0))
#: Numbers whose squares are beyond float16.
_LARGE: Values = ("uniform", -300.0, 300.0)

# Norms


@row("aten.layer_norm.default", "aten.native_layer_norm.default")
def _layer_norm_far(sketch: HurtfulSketch, name: str) -> Recipe:
    width = sketch.choice(ROWS)
    x = sketch.tensor((3, width), values=_OFF, layouts=False)
    weight = sketch.tensor((width,), values=("uniform", 0.5, 1.5), constant=True)
    bias = sketch.tensor((width,), constant=True)
    result = sketch.call(name, x, [width], weight, bias, 1e-5)
    output = Ref(result.name, 0) if "native" in name else result
    return sketch.recipe(output, reduction_length=width, depth=4, ill_conditioned=True)


@row("aten.layer_norm.default", "aten.native_layer_norm.default", "aten.rms_norm.default", dtypes=("float16",))
def _squares_beyond_half(sketch: HurtfulSketch, name: str) -> Recipe:
    width = sketch.choice((129, 197))
    x = sketch.tensor((2, width), values=_LARGE, layouts=False)
    weight = sketch.tensor((width,), values=("uniform", 0.5, 1.5), constant=True)
    bias = [] if "rms" in name else [sketch.tensor((width,), constant=True)]
    result = sketch.call(name, x, [width], weight, *bias, 1e-5)
    output = Ref(result.name, 0) if "native" in name else result
    return sketch.recipe(output, reduction_length=width, depth=4)


@row("aten.layer_norm.default", "aten.native_layer_norm.default")
def _constant_rows(sketch: HurtfulSketch, name: str) -> Recipe:
    """Rows of one number: only the bias remains."""
    width = sketch.choice((128, 256))  # powers of two: the mean is exact in any computation
    x = sketch.tensor((3, width), values=("among", (sketch.choice((3.0, -0.5, 1024.0)),)), layouts=False)
    weight = sketch.tensor((width,), values=("uniform", 0.5, 1.5), constant=True)
    bias = sketch.tensor((width,), values=("uniform", 1.0, 2.0), constant=True)
    result = sketch.call(name, x, [width], weight, bias, sketch.choice((1e-5, 1e-12)))
    output = Ref(result.name, 0) if "native" in name else result
    return sketch.recipe(output, reduction_length=width, depth=4)


@row("aten.layer_norm.default")
def _layer_norm_changing(sketch: HurtfulSketch, name: str) -> Recipe:
    width = sketch.choice((65, 129))
    x = sketch.tensor((1025, width), layouts=False)
    weight = sketch.tensor((width,), values=("uniform", 0.5, 1.5), constant=True)
    bias = sketch.tensor((width,), constant=True)
    sketch.call(name, x, [width], weight, bias, 1e-5)
    return changing(sketch.recipe(reduction_length=width, depth=4), {x.name: 0})


@row("aten.instance_norm.default")
def _instance_norm_far(sketch: HurtfulSketch, name: str) -> Recipe:
    width = sketch.choice(ROWS)
    x = sketch.tensor((2, 3, width), values=_OFF, layouts=False)
    weight = sketch.tensor((3,), values=("uniform", 0.5, 1.5), constant=True)
    bias = sketch.tensor((3,), constant=True)
    sketch.call(name, x, weight, bias, None, None, True, 0.1, 1e-5, False)
    return sketch.recipe(reduction_length=width, depth=4, ill_conditioned=True)


@row("aten.group_norm.default")
def _group_norm_far(sketch: HurtfulSketch, name: str) -> Recipe:
    groups, each, width = 3, sketch.choice((5, 11)), sketch.choice((17, 65))
    x = sketch.tensor((2, groups * each, width), values=_OFF, layouts=False)
    weight = sketch.tensor((groups * each,), values=("uniform", 0.5, 1.5), constant=True)
    bias = sketch.tensor((groups * each,), constant=True)
    sketch.call(name, x, groups, weight, bias, 1e-5)
    return sketch.recipe(reduction_length=each * width, depth=4, ill_conditioned=True)


_VARIANCES = ("var.correction", "std.correction", "var.dim", "std.dim")


@row(*(f"aten.{name}" for name in _VARIANCES))
def _variance_far(sketch: HurtfulSketch, name: str) -> Recipe:
    width = sketch.choice(ROWS)
    sketch.call(name, sketch.tensor((3, width), values=_FAR, layouts=False), [-1])
    return sketch.recipe(reduction_length=width, depth=4, ill_conditioned=True)


@row("aten.var_mean.correction", "aten.std_mean.correction", "aten.var.default", "aten.std.default")
def _all_variance_far(sketch: HurtfulSketch, name: str) -> Recipe:
    width = sketch.choice(ROWS)
    result = sketch.call(name, sketch.tensor((width,), values=_FAR, layouts=False))
    outputs = [Ref(result.name, 0), Ref(result.name, 1)] if "mean" in name else [result]
    return sketch.recipe(*outputs, reduction_length=width, depth=4, ill_conditioned=True)


_SOFTMAX = ("_softmax.default", "_log_softmax.default", "_safe_softmax.default", "softmax.int", "log_softmax.int")


@row(*(f"aten.{name}" for name in _SOFTMAX))
def _scores_far(sketch: HurtfulSketch, name: str) -> Recipe:
    width = sketch.choice((129, 197))
    high = sketch.choice((10003, -9997))
    x = sketch.tensor((3, width), values=("integers", high - 6, high), layouts=False)
    sketch.call(name, x, -1, *([False] if name in ("aten._softmax.default", "aten._log_softmax.default") else []))
    # Differences from the largest number are exact in float32, and not in float16.
    return sketch.recipe(reduction_length=width, depth=2, ill_conditioned=True)


@row("aten._softmax.default", "aten.softmax.int", "aten.log_softmax.int")
def _scores_changing(sketch: HurtfulSketch, name: str) -> Recipe:
    width = sketch.choice((65, 129))
    x = sketch.tensor((1025, width), layouts=False)
    sketch.call(name, x, -1, *([False] if name == "aten._softmax.default" else []))
    return changing(sketch.recipe(reduction_length=width, depth=2), {x.name: 0})


@row("aten.logsumexp.default", dtypes=("float32", "float16"))
def _logsumexp_far(sketch: HurtfulSketch, name: str) -> Recipe:
    width = sketch.choice((129, 1025))
    x = sketch.tensor((3, width), values=("integers", 1000, 1003), layouts=False)
    sketch.call(name, x, [-1])
    return sketch.recipe(reduction_length=width, depth=3)


# Sums beyond float16


@row("aten.mean.default", "aten.mean.dim", "aten.linalg_vector_norm.default", dtypes=FLOATS)
def _sum_beyond_half(sketch: HurtfulSketch, name: str) -> Recipe:
    width = sketch.choice((16385, 20011))
    if name == "aten.mean.default":
        sketch.call(name, sketch.tensor((width,), values=_MANY))
    elif name == "aten.mean.dim":
        sketch.call(name, sketch.tensor((2, width), values=_MANY), [-1])
    else:
        sketch.call(name, sketch.tensor((2, width), values=_MANY), 2, [-1])
    return sketch.recipe(reduction_length=width, depth=4 if "norm" in name else 1)


@row("aten.avg_pool2d.default", dtypes=FLOATS)
def _pool_beyond_half(sketch: HurtfulSketch, name: str) -> Recipe:
    size = sketch.choice((28, 33))
    x = sketch.tensor((1, 3, size, size), values=("uniform", 80.0, 160.0))
    sketch.call(name, x, [size, size])
    return sketch.recipe(reduction_length=size * size)


@row("aten.adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d.default", dtypes=FLOATS)
def _adaptive_beyond_half(sketch: HurtfulSketch, name: str) -> Recipe:
    size = sketch.choice((28, 33))
    x = sketch.tensor((1, sketch.choice((17, 65)), size, size), values=("uniform", 80.0, 160.0))
    sketch.call(name, x, [1, 1])
    return sketch.recipe(reduction_length=(size + 1) ** 2)


# Many groups, and windows at their ends


def _results(sizes: Sequence[int], kernel: int, stride: int, padding: int, dilation: int) -> list[int]:
    return [(size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for size in sizes]


@row("aten.conv1d.default", "aten.conv2d.default", "aten.convolution.default", "aten.conv3d.default")
def _depthwise(sketch: HurtfulSketch, name: str) -> Recipe:
    """As many groups as channels, no multiple of a vector; taps apart and steps beyond the window."""
    rank = {"1": 1, "3": 3}.get(name.removeprefix("aten.conv")[0], 2)
    channels, multiplier = sketch.choice((17, 33, 65)), sketch.choice((1, 1, 2))
    kernel, stride, dilation = sketch.choice(((3, 1, 2), (1, 3, 1), (3, 2, 1), (5, 1, 1)))
    padding = sketch.choice((0, dilation * (kernel - 1)))
    sizes = [dilation * (kernel - 1) + 1 + sketch.choice((0, 1, 6)) for _ in range(rank)]
    results = (1, channels * multiplier, *_results(sizes, kernel, stride, padding, dilation))
    values = summands(sketch, results)
    x = sketch.tensor((1, channels, *sizes), values=values)
    weight = sketch.tensor((channels * multiplier, 1, *[kernel] * rank), values=values, constant=True)
    bias = sketch.tensor((channels * multiplier,), values=values, constant=True)
    windows: list[Any] = [[number] * rank for number in (stride, padding, dilation)]
    more = [False, [0] * rank] if name == "aten.convolution.default" else []
    sketch.call(name, x, weight, bias, *windows, *more, channels)
    return sketch.recipe(reduction_length=kernel**rank + 1)


@row("aten.conv1d.default", "aten.conv2d.default", "aten.convolution.default")
def _padded_points(sketch: HurtfulSketch, name: str) -> Recipe:
    """Windows of one element beyond the input's edges, along each axis alone and along all, in one step or two."""
    rank = 1 if "1d" in name else 2
    x = sketch.tensor((1, 3, *[4] * rank), values=("among", (0.5, 1.0, -1.0, 2.0)), layouts=False)
    paddings = ([1],) if rank == 1 else ([1, 1], [0, 1], [1, 0])
    made = []
    for padding in paddings:
        for stride in ([1] * rank, [2] * rank):
            weight = sketch.tensor((4, 3, *[1] * rank), values=("among", (0.5, 1.0, -1.5)), constant=True)
            bias = sketch.tensor((4,), values=("among", (0.25, -0.5, 3.0)), constant=True)
            more = [False, [0] * rank] if name == "aten.convolution.default" else []
            made.append(sketch.call(name, x, weight, bias, stride, padding, [1] * rank, *more, 1))
    return sketch.recipe(*made, reduction_length=4)


#: Size, kernel, stride, padding and dilation along an axis, where no window, or not each one, reads an element.
_BESIDE = ((1, 1, 2, 1, 1), (2, 1, 5, 2, 1), (2, 2, 1, 1, 3), (1, 1, 3, 2, 1), (3, 1, 2, 2, 1), (2, 2, 3, 3, 2))


@row("aten.conv1d.default", "aten.conv2d.default", "aten.convolution.default")
def _windows_in_padding(sketch: HurtfulSketch, name: str) -> Recipe:
    """Windows that read nothing but padding along one axis: of their results the bias remains."""
    rank = 1 if "1d" in name else 2
    made = []
    for axis in range(rank):
        for numbers in _BESIDE:
            # The other axis is longer than the padded one, and neither is as long as there are channels.
            forms = [numbers if at == axis else (4, 3, 1, 1, 1) for at in range(rank)]
            sizes, kernel, stride, padding, dilation = (list(each) for each in zip(*forms, strict=True))
            x = sketch.tensor((1, 5, *sizes), values=("among", (0.5, 1.0, -1.0, 2.0)), layouts=False)
            weight = sketch.tensor((6, 5, *kernel), values=("among", (0.5, 1.0, -1.5)), constant=True)
            bias = sketch.tensor((6,), values=("among", (0.25, -0.5, 3.0)), constant=True)
            more = [False, [0] * rank] if name == "aten.convolution.default" else []
            made.append(sketch.call(name, x, weight, bias, stride, padding, dilation, *more, 1))
    return sketch.recipe(*made, reduction_length=5 * 6 + 1)


@row("aten.conv1d.default", "aten.conv2d.default", "aten.convolution.default")
def _wide_convolution(sketch: HurtfulSketch, name: str) -> Recipe:
    """Weights at an extreme, channels that fill no vector, and a window as large as the input."""
    rank = 1 if "1d" in name else 2
    inputs, outputs = sketch.choice((3, 33, 65)), sketch.choice((17, 65, 129))
    kernel = sketch.choice((1, 3))
    scale = sketch.choice((1e5, 1e-6))
    sizes = [kernel + sketch.choice((0, 4)) for _ in range(rank)]
    x = sketch.tensor((1, inputs, *sizes), values=("uniform", 0.25, 1.25))
    weight = sketch.tensor((outputs, inputs, *[kernel] * rank), values=("uniform", 0.25 * scale, scale), constant=True)
    more = [False, [0] * rank] if name == "aten.convolution.default" else []
    sketch.call(name, x, weight, None, [1] * rank, [0] * rank, [1] * rank, *more, 1)
    return sketch.recipe(reduction_length=inputs * kernel**rank + 1)


@row("aten.conv2d.default")
def _many_terms(sketch: HurtfulSketch, name: str) -> Recipe:
    """A window over the whole input: more terms of one result than 16 bits count, along every axis."""
    inputs, height, width = sketch.choice(((33, 47, 43), (17, 61, 65)))
    x = sketch.tensor((1, inputs, height, width), values=("among", (0.5, 1.0, 1.5)), layouts=False)
    weight = sketch.tensor((2, inputs, height, width), values=("among", (0.5, 1.0, 2.0)), constant=True)
    sketch.call(name, x, weight, None, [1, 1], [0, 0], [1, 1], 1)
    return sketch.recipe(reduction_length=inputs * height * width)


@row("aten.conv2d.default", "aten.convolution.default")
def _long_kernels(sketch: HurtfulSketch, name: str) -> Recipe:
    """Kernels of more than 4096 elements, in one row and in no more rows than others have."""
    made = []
    for groups, kernel in ((1, (1, 4097)), (2, (64, 65)), (1, (4099, 1))):
        sizes = [size + extra for size, extra in zip(kernel, (1, 2), strict=True)]
        x = sketch.tensor((1, 2, *sizes), values=("among", (0.5, 1.0, 1.5)), layouts=False)
        weight = sketch.tensor((2, 2 // groups, *kernel), values=("among", (0.5, 1.0, 2.0)), constant=True)
        more = [False, [0, 0]] if name == "aten.convolution.default" else []
        made.append(sketch.call(name, x, weight, None, [1, 1], [0, 0], [1, 1], *more, groups))
    return sketch.recipe(*made, reduction_length=2 * 4099)


# Along an axis of middle size


#: Shapes with some dozens of elements along the second axis, and others before and after it. There are at most 4096,
#: for which float16 has numbers that differ from one another.
_MIDDLE = ((5, 24, 33), (9, 17, 26), (3, 40, 34))
#: Operator -> its arguments for the second axis, and numbers of which the result is determined.
_ALONG: Mapping[str, tuple[tuple[Any, ...], Values]] = {
    **{
        f"aten.{name}": (([1],), ("uniform", 0.25, 1.25))
        for name in ("sum.dim_IntList", "mean.dim", "logsumexp.default")
    },
    **{f"aten.{name}.default": (([1],), ("distinct",)) for name in ("amax", "amin")},
    **{f"aten.{name}": ((1,), ("distinct",)) for name in ("argmax.default", "argmin.default", "max.dim", "min.dim")},
    **{f"aten.{name}.default": ((1,), ("distinct",)) for name in ("cummax", "cummin")},
    **{
        f"aten.{name}": ((1,), ("among", (0.5, 1.0, 2.0, -1.0, 1.0, -1.0)))
        for name in ("prod.dim_int", "cumprod.default")
    },
    **{f"aten.{name}.dim": ((1,), ("integers", 0, 1)) for name in ("any", "all")},
    "aten.cumsum.default": ((1,), ("uniform", 0.25, 1.25)),
    "aten._softmax.default": ((1, False), ("normal",)),
    "aten.sort.default": ((1, True), ("distinct",)),
    "aten.topk.default": ((7, 1), ("distinct",)),
    "aten.kthvalue.default": ((9, 1), ("distinct",)),
    "aten.median.dim": ((1,), ("distinct",)),
}
#: Those with several results.
_TWO = ("sort.", "topk.", "kthvalue.", "median.", "cummax.", "cummin.", "max.dim", "min.dim")


@row(*_ALONG)
def _middle_axis(sketch: HurtfulSketch, name: str) -> Recipe:
    arguments, values = _ALONG[name]
    shape = sketch.choice(_MIDDLE)
    result = sketch.call(name, sketch.tensor(shape, values=values, layouts=False), *arguments)
    outputs = (
        [Ref(result.name, 0), Ref(result.name, 1)] if name.startswith(tuple(f"aten.{one}" for one in _TWO)) else []
    )
    return sketch.recipe(*outputs, reduction_length=shape[1], depth=2)


# Products


@row("aten.linear.default", "aten.mm.default", "aten.matmul.default", "aten.bmm.default", "aten.addmm.default")
def _scaled_product(sketch: HurtfulSketch, name: str) -> Recipe:
    """A long sum with weights at an extreme: 1e5 or 1e-6."""
    k, n = sketch.choice((129, 1025)), sketch.choice((3, 17))
    scale = sketch.choice((1e5, 1e-6))
    batch = [2] if "bmm" in name else []
    x = sketch.tensor((*batch, 3, k), values=("uniform", 0.25, 1.25))
    shape = (n, k) if "linear" in name else (*batch, k, n)
    weight = sketch.tensor(shape, values=("uniform", 0.25 * scale, scale), constant="bmm" not in name)
    added = [sketch.tensor((n,), values=("uniform", 0.25 * scale, scale), constant=True)] if "addmm" in name else []
    sketch.call(name, *added, x, weight)
    return sketch.recipe(reduction_length=k + 1, depth=2 if added else 1)


#: Weights of more bytes than the caches of small processors: a compiler may cut them into parts.
_LARGE_WEIGHTS = 1 << 21


@row("aten.linear.default", "aten.mm.default", "aten.addmm.default")
def _large_weights(sketch: HurtfulSketch, name: str) -> Recipe:
    """A product with many weights; for odd sizes no two parts of them are alike."""
    k, n = sketch.choice((1024, 769)), sketch.choice((768, 801))
    values = summands(sketch, (3, n))
    x = sketch.tensor((3, k), values=values, layouts=False)
    weight = sketch.tensor((n, k) if "linear" in name else (k, n), values=values, constant=True)
    added = [sketch.tensor((n,), values=values, constant=True)] if "mm" not in name or "add" in name else []
    arguments = [*added, x, weight] if "addmm" in name else [x, weight, *added]
    sketch.call(name, *arguments)
    return sketch.recipe(reduction_length=k + 1, depth=2 if "addmm" in name else 1)


@row("aten.conv2d.default", "aten.convolution.default")
def _many_filters(sketch: HurtfulSketch, name: str) -> Recipe:
    """A convolution with many weights, over few places."""
    outputs = sketch.choice((256, 250))
    inputs = _LARGE_WEIGHTS // (outputs * 9 * 4)
    values = summands(sketch, (1, outputs, 2, 3))
    x = sketch.tensor((1, inputs, 4, 5), values=values, layouts=False)
    weight = sketch.tensor((outputs, inputs, 3, 3), values=values, constant=True)
    bias = sketch.tensor((outputs,), values=values, constant=True)
    more = [False, [0, 0]] if name == "aten.convolution.default" else []
    sketch.call(name, x, weight, bias, [1, 1], [0, 0], [1, 1], *more, 1)
    return sketch.recipe(reduction_length=inputs * 9 + 1)


@row("aten.linear.default")
def _linear_changing(sketch: HurtfulSketch, name: str) -> Recipe:
    k, n = sketch.choice((17, 65)), sketch.choice((3, 33))
    x = sketch.tensor((1025, k), layouts=False)
    weight, bias = sketch.tensor((n, k), constant=True), sketch.tensor((n,), constant=True)
    sketch.call(name, x, weight, bias)
    return changing(sketch.recipe(reduction_length=k + 1), {x.name: 0})


# Tables


@row("aten.embedding.default", dtypes=(*FLOATS, "int64", "int32", "int8"))
def _long_embedding(sketch: HurtfulSketch, name: str) -> Recipe:
    count = sketch.choice((16391, 32771))
    weight = sketch.tensor((count, 3), constant=True)
    index = sketch.tensor((2, 5), "int64", values=_places(count), layouts=False)
    sketch.call(name, weight, index)
    return sketch.recipe(exact=True)


@row("aten.embedding.default")
def _embedding_changing(sketch: HurtfulSketch, name: str) -> Recipe:
    weight = sketch.tensor((16391, 3), constant=True)
    index = sketch.tensor((1025,), "int64", values=_places(16391), layouts=False)
    sketch.call(name, weight, index)
    return changing(sketch.recipe(exact=True), {index.name: 0})


@row("aten.index_select.default", "aten.index.Tensor", dtypes=(*FLOATS, "int64", "int32", "int8"))
def _long_table(sketch: HurtfulSketch, name: str) -> Recipe:
    count = sketch.choice((16391, 32771))
    x = sketch.tensor((count, 3), layouts=False)
    index = sketch.tensor((7,), "int64", values=_places(count), layouts=False)
    sketch.call(name, *((x, [index]) if name == "aten.index.Tensor" else (x, 0, index)))
    return sketch.recipe(exact=True)


@row("aten.gather.default", dtypes=(*FLOATS, "int64", "int32", "int8"))
def _gather_far(sketch: HurtfulSketch, name: str) -> Recipe:
    count = sketch.choice((16391, 32771))
    x = sketch.tensor((count, 3), layouts=False)
    sketch.call(name, x, 0, sketch.tensor((5, 3), "int64", values=_places(count), layouts=False))
    return sketch.recipe(exact=True)


def _places(count: int) -> Values:
    """Rows of a table: the first ones, the last ones, and those around 2**14."""
    return ("among", (0, 1, 8191, 16383, 16384, 16385, count // 2, count - 2, count - 1))


# Numbers of all sizes

#: Powers of two, from near the smallest normal float32 to near the largest one.
_MAGNITUDES = (-120, -80, -40, -20, -12, -6, 6, 12, 15, 20, 40, 80, 120)


def of_each(sketch: HurtfulSketch, name: str, tensors: Iterable[tuple[float, ...]]) -> Recipe:
    """A function of each of several tensors, by their numbers; without those whose results are not determined."""
    steep = name.split(".")[1] in STEEP

    def called(sketch: HurtfulSketch, numbers: tuple[float, ...]) -> Ref:
        return sketch.call(name, sketch.tensor((len(numbers),), values=("literal", numbers), layouts=False))

    made = []
    for numbers in tensors:
        # Not at random: determined alone is determined beside others.
        alone = HurtfulSketch(name, sketch.dtype, ENDS)
        called(alone, numbers)
        if is_determined(alone.recipe(ill_conditioned=steep)):
            made.append(called(sketch, numbers))
    return sketch.recipe(*made, ill_conditioned=steep)


@row(*(f"aten.{name}.default" for name in FUNCTIONS))
def _all_magnitudes(sketch: HurtfulSketch, name: str) -> Recipe:
    """Each magnitude of the function's inputs in a tensor of its own: large results hide no errors of small ones."""
    signed = ((power, sign) for power in _MAGNITUDES for sign in (1, -1))
    return of_each(
        sketch,
        name,
        (tuple(math.ldexp(sign * (1 + 0.1173 * place), power) for place in range(9)) for power, sign in signed),
    )


_ARITHMETIC = ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum.default", "minimum.default")


@row(*(f"aten.{name}" for name in _ARITHMETIC))
def _paired_magnitudes(sketch: HurtfulSketch, name: str) -> Recipe:
    """Numbers of two magnitudes, whose results have each a tensor of its own."""
    made = []
    for powers in ((-60, -40), (60, 40), (-60, 60), (15, 17), (-14, -17), (100, 3)):
        x, y = (
            sketch.tensor((9,), values=("uniform", sign * math.ldexp(1.0, power), math.ldexp(2.0, power)))
            for power, sign in zip(powers, (-1, 0.5), strict=True)
        )
        made.append(sketch.call(name, x, y))
    return sketch.recipe(*made)


#: NaN with the least and the largest bits, of either sign, beside infinities and ordinary ones.
_NONE = (0x3F800000, 0x7F800001, 0xC0000000, 0x40400000, 0xFF800001, 0x7F800000, 0x7FFFFFFF, 0xFFFFFFFF)
_CHOOSING: Mapping[str, tuple[Any, ...]] = {
    "aten.argmax.default": (1,),
    "aten.argmin.default": (1,),
    "aten.amax.default": ([1],),
    "aten.amin.default": ([1],),
    "aten.isnan.default": (),
    "aten.relu.default": (),
    "aten.clamp.default": (-1.5, 1.5),
    "aten.eq.Scalar": (1.0,),
    "aten.ne.Scalar": (1.0,),
    "aten.sign.default": (),
}


@row(*_CHOOSING)
def _none_of_all_kinds(sketch: HurtfulSketch, name: str) -> Recipe:
    """NaN with other bits than those of arithmetic: for backends that compare and choose by bits."""
    made = [
        sketch.call(name, sketch.tensor((4, 2), values=("bits", order)), *_CHOOSING[name])
        for order in (_NONE, _NONE[::-1], _NONE[2:] + _NONE[:2])
    ]
    return sketch.recipe(*made, exact=True)


# Many numbers


@row("aten.add.Tensor", "aten.mul.Tensor")
def _many_numbers(sketch: HurtfulSketch, name: str) -> Recipe:
    """A column beside a row, of sizes that no vector divides: more results than 22 bits count."""
    column, row = (sketch.tensor(shape, values=("integers", -30, 30)) for shape in ((2051, 1), (1, 2049)))
    sketch.call(name, column, row)
    return sketch.recipe(exact=True)


@row("aten.linear.default", "aten.mm.default", "aten.bmm.default", "aten.matmul.default")
def _long_sum(sketch: HurtfulSketch, name: str) -> Recipe:
    """A sum of hundreds of thousands of products, all of them exact."""
    k = sketch.choice((262149, 300007))
    values: Values = ("among", (0.0, 0.0, 0.0, 0.5, 1.0, -1.0))
    batch = [1] if "bmm" in name else []
    x = sketch.tensor((*batch, 1, k), values=values, layouts=False)
    shape = (2, k) if "linear" in name else (*batch, k, 2)
    sketch.call(name, x, sketch.tensor(shape, values=values, constant="bmm" not in name, layouts=False))
    return sketch.recipe(reduction_length=k)


# Numbers beside a tensor


#: Operator -> a number that is beyond float16, and numbers whose results with it are not.
_BEYOND_HALF: Mapping[str, tuple[float, Values]] = {
    "aten.add.Scalar": (100000.0, ("among", (-60000.0, -50016.0, -65504.0))),
    "aten.mul.Scalar": (2.0**17, ("among", (2.0**-4, -(2.0**-5), 3 * 2.0**-6))),
    "aten.div.Scalar": (2.0**17, ("among", (8192.0, -12288.0, 16384.0))),
    "aten.elu.default": (2.0**17, ("among", (-(2.0**-6), -(2.0**-8), -(2.0**-10), 0.0))),
}


@row(*_BEYOND_HALF, dtypes=("float16",))
def _number_beyond_half(sketch: HurtfulSketch, name: str) -> Recipe:
    number, values = _BEYOND_HALF[name]
    sketch.call(name, sketch.tensor((5, 17), values=values), number)
    return sketch.recipe(depth=2)


# Arguments far from the usual


@row("aten.avg_pool2d.default")
def _far_divisor(sketch: HurtfulSketch, name: str) -> Recipe:
    """Divisors that neither float32 nor 32 bits hold."""
    x = sketch.tensor((1, 3, 5, 6), values=("uniform", 1e9, 2e9))
    made = [
        sketch.call(name, x, [2, 3], [1, 2], [1, 0], False, True, divisor)
        for divisor in (2**24 + 1, 2**31 - 1, 2**32 + 1)
    ]
    return sketch.recipe(*made, reduction_length=6, depth=2)


@row("aten.max_pool2d.default", "aten.avg_pool2d.default")
def _long_window(sketch: HurtfulSketch, name: str) -> Recipe:
    """Windows that are long along one axis, where the largest number may be the last one."""
    long = sketch.choice((16384, 16390))
    tall = sketch.tensor((1, 1, long, 3), values=("uniform", 0.5, 1.5))
    wide = sketch.tensor((1, 1, 3, long), values=("uniform", 0.5, 1.5))
    made = [sketch.call(name, tall, [long, 2], [1, 1]), sketch.call(name, wide, [2, long], [1, 1])]
    return sketch.recipe(*made, reduction_length=1 if "max" in name else 2 * long)


@row("aten.index_put.default")
def _written_from_the_end(sketch: HurtfulSketch, name: str) -> Recipe:
    """Places that count from the end, alone and beside others."""
    x, rows = sketch.tensor((7, 3)), sketch.tensor((2, 3))
    literals = ("literal", (-1, 2)), ("literal", (-3, -7))
    places = [sketch.tensor((2,), "int64", values=values, constant=True) for values in literals]
    made = [sketch.call(name, x, [place], rows, added) for place in places for added in (False, True)]
    return sketch.recipe(*made)


@row("aten.pow.Tensor_Scalar")
def _far_powers(sketch: HurtfulSketch, name: str) -> Recipe:
    """Powers beyond those that are products of a few."""
    x = sketch.tensor((sketch.choice((9, 17)),), values=("uniform", 0.75, 1.5))
    powers = [sketch.call(name, x, exponent) for exponent in (9, 4.5, -9, 12, 0.75, -0.25, 8.5)]
    return sketch.recipe(*powers, depth=4)


#: Sizes before and after, whose quotient in single or double precision, times the first, is below the second: code that
#: uses it for the size of the result has one pixel less.
_LOST_PIXELS = ((11, 13), (11, 26), (19, 27), (11, 15), (13, 15))


@row("aten.upsample_bilinear2d.vec", "aten.upsample_nearest2d.vec")
def _other_sizes(sketch: HurtfulSketch, name: str) -> Recipe:
    """Images with one axis longer than the other, each in a size of its own."""
    corners = [False] if "bilinear" in name else []
    made = []
    for old, new in _LOST_PIXELS:
        for shape, size in (((old, 4), [new, 9]), ((3, old), [6, new])):
            x = sketch.tensor((1, 2, *shape), values=("uniform", 0.5, 1.5), layouts=False)
            made.append(sketch.call(name, x, size, *corners, None))
    return sketch.recipe(*made, reduction_length=4, depth=4)


# Scales of softmax in attention


@row("aten.scaled_dot_product_attention.default")
def _attention_far(sketch: HurtfulSketch, name: str) -> Recipe:
    """Scores far from zero: all keys have one large component in common, which affects all scores alike."""
    keys, width = sketch.choice((129, 197)), sketch.choice((17, 65))
    q = sketch.tensor((1, 2, 5, width), values=("integers", 3, 3))
    k = sketch.tensor((1, 2, keys, width), values=("among", (8.0, 8.0, 8.0)))
    v = sketch.tensor((1, 2, keys, 7), values=("uniform", 0.25, 1.25))
    sketch.call(name, q, k, v, scale=math.ldexp(1.0, -1))
    return sketch.recipe(reduction_length=width + keys, depth=4)
