"""Random graphs: recipes of 2 to 25 steps with branches, joins, views, several results and values that pass through.

A graph is drawn as a list of small numbers, a few for each step, and then built by one rule from left to right, so that
Hypothesis shrinks a graph by leaving steps out. While it is built, every step runs in float64: a step that PyTorch
refuses, or that makes values large, is not taken. Decisions (comparisons, indices of maxima) are made only on values
that no rounding changes. At the end the graph runs once more with every result off by a rounding: how far
that moves an output, compared with one rounding, is the output's depth; outputs that it moves too far are not returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import torch
from hypothesis import assume

from ..recipe import Recipe, Ref, Step, TensorRecipe, Values, find_target

#: Shapes of the first input.
_SHAPES = ((2, 3), (4,), (2, 3, 4), (1, 4, 6, 6), (2, 2, 5, 5), (3, 8), (1, 1), (1, 6, 8), (2, 1, 4), ())
#: A value has at most this many elements.
_LARGEST = 3000
#: Values beyond this are brought back to order 1.
_HIGH = 30.0
#: Two numbers that are compared differ by at least this, relative to the larger: far more than roundings of float32.
_MARGIN = 1e-3
#: A rounding may be enlarged this many times on its way to an output.
_ENLARGED = 100.0
#: Numbers that a step can use up.
_NUMBERS = 8


@dataclass(frozen=True)
class _Value:
    """A value of the graph with its float64 result for the example inputs."""

    ref: Ref
    tensor: torch.Tensor
    #: Steps of rounding operators on the longest path to it.
    depth: int = 0
    constant: bool = False

    @property
    def is_float(self) -> bool:
        return self.tensor.is_floating_point()

    @property
    def largest(self) -> float:
        return float(self.tensor.double().abs().max()) if self.tensor.numel() else 0.0

    @property
    def smallest(self) -> float:
        return float(self.tensor.double().abs().min()) if self.tensor.numel() else 1.0


class _InapplicableError(Exception):
    """This kind of step does not fit the values at hand."""


class _Graph:
    """A graph while it is built."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.tensors: list[tuple[str, TensorRecipe]] = []
        self.steps: list[Step] = []
        self.values: list[_Value] = []
        self.reduction = 1
        self._numbers: Iterator[int] = iter(())

    # choices

    def use(self, numbers: Sequence[int]) -> None:
        """The numbers that the choices of the next step are made by, followed by zeros."""
        self._numbers = iter(numbers)

    def one_of(self, count: int) -> int:
        """A number below `count`."""
        return next(self._numbers, 0) % count

    def choice(self, items: Sequence[Any]) -> Any:
        """One of the items."""
        return items[self.one_of(len(items))]

    def pick(self, fits: Callable[[_Value], bool] = lambda value: value.is_float) -> _Value:
        """A value that fits: mostly the latest."""
        fitting = [value for value in self.values if fits(value)]
        if not fitting:
            raise _InapplicableError
        number = next(self._numbers, 0)
        return fitting[-1 if number % 3 == 0 else -1 - number // 3 % len(fitting)]

    def dim(self, value: _Value) -> int:
        """A dimension of a value, now and then counted from the end."""
        rank = value.tensor.dim()
        if not rank:
            raise _InapplicableError
        number = next(self._numbers, 0)
        return number % rank - (rank if number // rank % 2 else 0)

    # tensors and steps

    def tensor(
        self, shape: Sequence[int], *, constant: bool = False, values: Values = ("normal",), dtype: str | None = None
    ) -> _Value:
        """A new input, or a constant."""
        name = f"x{len(self.tensors)}"
        recipe = TensorRecipe(tuple(shape), dtype or self.dtype, values, "contiguous", constant, 17 + len(self.tensors))
        self.tensors.append((name, recipe))
        made = recipe.make()
        value = _Value(Ref(name), made.double() if made.is_floating_point() else made, constant=constant)
        self.values.append(value)
        return value

    def weight(self, *shape: int) -> _Value:
        """A constant, scaled so that products stay of order 1; one of the same shape that is there may be taken."""
        there = [value for value in self.values if value.constant and value.tensor.shape == shape and value.is_float]
        if there and self.one_of(2):
            return there[-1]
        spread = 1.5 / math.sqrt(max(1, math.prod(shape[1:])))
        return self.tensor(shape, constant=True, values=("uniform", -spread, spread))

    def call(self, target: str, *args: Any, rounds: bool = True, reduction: int = 1, **kwargs: Any) -> list[_Value]:
        """Append a step; its results become values. Raises _InapplicableError where it cannot be."""
        name = f"y{len(self.steps)}"
        try:
            result = find_target(target)(*_tensors(args), **_tensors(kwargs))
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            raise _InapplicableError from error
        results = list(result) if isinstance(result, tuple | list) else [result]
        for tensor in results:
            if tensor.dim() > 5 or not 0 < tensor.numel() <= _LARGEST:
                raise _InapplicableError
            if tensor.is_floating_point() and not (tensor.isfinite().all() and tensor.abs().max() < 1e4):
                raise _InapplicableError
        depth = max((value.depth for value in _values((args, kwargs))), default=0) + rounds
        frozen = tuple((key, _frozen(value)) for key, value in kwargs.items())
        self.steps.append(Step(name, target, _frozen(args), frozen))
        self.reduction = max(self.reduction, reduction)
        several = isinstance(result, tuple | list)
        made = [_Value(Ref(name, i if several else None), t, depth) for i, t in enumerate(results)]
        self.values += made
        return made

    def calm(self, value: _Value) -> _Value:
        """A value of order 1: itself, or brought back to it by a further step."""
        if not value.is_float or value.largest <= _HIGH:
            return value
        target, *more = self.choice((("aten.tanh.default",), ("aten.mul.Scalar", 1 / 64), ("aten.sigmoid.default",)))
        return self.call(target, value, *more)[0]


def _tensors(value: Any) -> Any:
    if isinstance(value, _Value):
        return value.tensor
    if isinstance(value, tuple | list):
        return [_tensors(item) for item in value] if isinstance(value, list) else tuple(map(_tensors, value))
    if isinstance(value, dict):
        return {key: _tensors(item) for key, item in value.items()}
    return value


def _values(value: Any) -> Iterator[_Value]:
    if isinstance(value, _Value):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _values(item)
    elif isinstance(value, dict):
        yield from _values(list(value.values()))


def _frozen(value: Any) -> Any:
    if isinstance(value, _Value):
        return value.ref
    if isinstance(value, tuple | list):
        return tuple(_frozen(item) for item in value)
    return value


# -- kinds of steps --------------------------------------------------------------------------------------------------

Kind = Callable[[_Graph], Any]


def _smooth(graph: _Graph) -> None:
    graph.call(
        graph.choice(
            (
                "aten.tanh.default",
                "aten.sigmoid.default",
                "aten.gelu.default",
                "aten.silu.default",
                "aten.hardswish.default",
                "aten.hardsigmoid.default",
                "aten.sin.default",
                "aten.cos.default",
                "aten.erf.default",
                "aten.atan.default",
                "aten.softplus.default",
                "aten.elu.default",
                "aten.leaky_relu.default",
                "aten.mish.default",
            )
        ),
        graph.pick(),
    )


def _exact_unary(graph: _Graph) -> None:
    target, *more = graph.choice(
        (
            ("aten.relu.default",),
            ("aten.neg.default",),
            ("aten.abs.default",),
            ("aten.clamp.default", -0.75, 1.5),
            ("aten.hardtanh.default",),
            ("aten.relu6.default",),
            ("aten.clone.default",),
            ("aten.clamp.default", None, 0.5),
        )
    )
    graph.call(target, graph.pick(), *more, rounds=False)


#: Operators with a domain: the smallest and the largest value that they get.
_DOMAINS = {
    "aten.exp.default": (-20.0, 3.0),
    "aten.log.default": (0.05, 1e3),
    "aten.sqrt.default": (0.02, 1e3),
    "aten.rsqrt.default": (0.05, 1e3),
    "aten.reciprocal.default": (0.1, 1e3),
    "aten.log1p.default": (-0.8, 1e3),
}


def _with_domain(graph: _Graph) -> None:
    value = graph.pick()
    target = graph.choice(tuple(_DOMAINS))
    low, high = _DOMAINS[target]
    if not (value.tensor.min() >= low and value.tensor.max() <= high):
        (value,) = graph.call("aten.sigmoid.default", value)
        (value,) = graph.call("aten.add.Scalar", value, 0.5)
    graph.call(target, value)


def _scalar(graph: _Graph) -> None:
    target, number = graph.choice(
        (
            ("aten.add.Scalar", 1.5),
            ("aten.mul.Scalar", -0.5),
            ("aten.sub.Scalar", 0.25),
            ("aten.div.Scalar", 3.0),
            ("aten.rsub.Scalar", 1.0),
            ("aten.pow.Tensor_Scalar", 2),
            ("aten.add.Tensor", 2),
            ("aten.mul.Tensor", 1.25),
        )
    )
    graph.calm(graph.call(target, graph.pick(), number)[0])


_BINARY = ("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.maximum.default", "aten.minimum.default")


def _binary(graph: _Graph) -> None:
    first = graph.pick()
    second = graph.pick(lambda value: value.is_float and _broadcast(first, value))
    target = graph.choice(_BINARY)
    graph.calm(graph.call(target, *((first, second) if graph.one_of(2) == 0 else (second, first)))[0])


def _broadcast(first: _Value, second: _Value) -> bool:
    pairs = zip(reversed(first.tensor.shape), reversed(second.tensor.shape), strict=False)
    return all(one == other or 1 in (one, other) for one, other in pairs)


def _binary_new(graph: _Graph) -> None:
    value = graph.pick()
    shape = [1 if graph.one_of(3) == 2 else size for size in value.tensor.shape]
    other = graph.tensor(shape[graph.one_of(len(shape) + 1) :] if shape else shape, constant=graph.one_of(2) == 1)
    graph.calm(graph.call(graph.choice(_BINARY), value, other)[0])


def _twice(graph: _Graph) -> None:
    value = graph.pick()
    graph.calm(graph.call(graph.choice(("aten.add.Tensor", "aten.mul.Tensor")), value, value)[0])


def _quotient(graph: _Graph) -> None:
    first = graph.pick()
    second = graph.pick(lambda value: value.is_float and _broadcast(first, value) and value.smallest > 0.1)
    graph.calm(graph.call("aten.div.Tensor", first, second)[0])


def _axpy(graph: _Graph) -> None:
    first = graph.pick()
    second = graph.pick(lambda value: value.is_float and _broadcast(first, value))
    graph.calm(graph.call(graph.choice(("aten.add.Tensor", "aten.sub.Tensor")), first, second, alpha=0.5)[0])


def _linear(graph: _Graph) -> None:
    value = graph.pick(lambda value: value.is_float and value.tensor.dim() > 0)
    width = value.tensor.shape[-1]
    weight = graph.weight(graph.choice((width, 4, 1, 7)), width)
    bias = graph.weight(weight.tensor.shape[0]) if graph.one_of(2) == 0 else None
    graph.call("aten.linear.default", value, weight, bias, reduction=width)


def _matmul(graph: _Graph) -> None:
    first = graph.pick(lambda value: value.is_float and value.tensor.dim() > 1)
    size = first.tensor.shape[-1]
    if graph.one_of(3) == 0:
        rank = first.tensor.dim()
        (second,) = graph.call("aten.transpose.int", first, rank - 1, rank - 2, rounds=False)
    else:
        second = graph.pick(lambda value: value.is_float and value.tensor.dim() > 1 and value.tensor.shape[-2] == size)
    graph.calm(graph.call("aten.matmul.default", first, second, reduction=size)[0])


def _convolution(graph: _Graph) -> None:
    value = graph.pick(lambda value: value.is_float and value.tensor.dim() in (3, 4))
    dims = value.tensor.dim() - 2
    channels = value.tensor.shape[1]
    groups = channels if graph.one_of(3) == 2 else 1
    kernel = graph.choice((1, 3, 2))
    weight = graph.weight(graph.choice((channels, 2 * channels)), channels // groups, *[kernel] * dims)
    bias = graph.weight(weight.tensor.shape[0]) if graph.one_of(2) == 0 else None
    stride, padding = graph.choice((1, 2)), graph.choice((0, kernel // 2))
    graph.call(
        f"aten.conv{dims}d.default",
        value,
        weight,
        bias,
        [stride] * dims,
        [padding] * dims,
        [1] * dims,
        groups,
        reduction=channels // groups * kernel**dims,
    )


def _pool(graph: _Graph) -> None:
    value = graph.pick(lambda value: value.is_float and value.tensor.dim() == 4)
    choice = graph.one_of(4)
    if choice == 0:
        graph.call("aten.max_pool2d.default", value, [2, 2], [graph.choice((2, 1))] * 2, rounds=False)
    elif choice == 1:
        graph.call("aten.avg_pool2d.default", value, [2, 2], [2, 2], reduction=4)
    elif choice == 2:
        area = value.tensor.shape[2] * value.tensor.shape[3]
        graph.call("aten.adaptive_avg_pool2d.default", value, [1, 1], reduction=area)
    else:
        graph.call("aten.upsample_nearest2d.vec", value, None, [2.0, 2.0], rounds=False)


def _normalize(graph: _Graph) -> None:
    value = graph.pick(lambda value: value.is_float and value.tensor.dim() > 0)
    size = value.tensor.shape[-1]
    choice = graph.one_of(4)
    if choice == 0:
        dim = graph.dim(value)
        graph.call("aten.softmax.int", value, dim, reduction=value.tensor.shape[dim])
    elif choice == 1:
        dim = graph.dim(value)
        graph.call("aten.log_softmax.int", value, dim, reduction=value.tensor.shape[dim])
    elif choice == 2 and size > 1:
        affine = (graph.weight(size), graph.weight(size)) if graph.one_of(2) else (None, None)
        graph.call("aten.layer_norm.default", value, [size], *affine, 0.1, reduction=size)
    else:
        (square,) = graph.call("aten.mul.Tensor", value, value)
        (mean,) = graph.call("aten.mean.dim", square, [-1], True, reduction=size)
        (mean,) = graph.call("aten.add.Scalar", mean, 0.1)
        (scale,) = graph.call("aten.rsqrt.default", mean)
        graph.call("aten.mul.Tensor", value, scale)


def _batch_norm(graph: _Graph) -> None:
    value = graph.pick(lambda value: value.is_float and value.tensor.dim() in (3, 4))
    channels = value.tensor.shape[1]
    weight, bias, mean = graph.weight(channels), graph.weight(channels), graph.weight(channels)
    variance = graph.tensor((channels,), constant=True, values=("uniform", 0.5, 1.5))
    graph.call("aten.batch_norm.default", value, weight, bias, mean, variance, False, 0.1, 1e-5, True)


def _reduce(graph: _Graph) -> None:
    value = graph.pick(lambda value: value.is_float and value.tensor.dim() > 0)
    dim, keep = graph.dim(value), graph.one_of(3) != 2
    size = value.tensor.shape[dim]
    target = graph.choice(("aten.mean.dim", "aten.sum.dim_IntList", "aten.amax.default", "aten.amin.default"))
    rounds = target not in ("aten.amax.default", "aten.amin.default")
    graph.calm(graph.call(target, value, [dim], keep, rounds=rounds, reduction=size if rounds else 1)[0])


def _cumsum(graph: _Graph) -> None:
    value = graph.pick(lambda value: value.is_float and value.tensor.dim() > 0)
    dim = graph.dim(value)
    graph.calm(graph.call("aten.cumsum.default", value, dim, reduction=value.tensor.shape[dim])[0])


def _view(graph: _Graph) -> None:
    value = graph.pick(lambda _: True)
    shape = list(value.tensor.shape)
    rank = len(shape)
    choice = graph.one_of(12)
    if choice == 0:
        order = list(range(rank))
        first, second = (graph.one_of(rank), graph.one_of(rank)) if rank else (0, 0)
        if first == second:
            raise _InapplicableError
        order[first], order[second] = order[second], order[first]
        graph.call("aten.permute.default", value, order, rounds=False)
    elif choice == 1:
        graph.call(
            "aten.reshape.default", value, graph.choice(([-1], [1, -1], [-1, 2], [2, -1], [-1, 1])), rounds=False
        )
    elif choice == 2:
        graph.call("aten.unsqueeze.default", value, graph.one_of(rank + 1) - graph.choice((0, rank + 1)), rounds=False)
    elif choice == 3:
        graph.call("aten.squeeze.dim", value, graph.dim(value), rounds=False)
    elif choice == 4 and rank:
        dim = graph.dim(value)
        start, stop, step = graph.choice(((0, 2, 1), (1, 1000, 1), (0, -1, 1), (0, 1000, 2), (-2, 1000, 1)))
        graph.call("aten.slice.Tensor", value, dim, start, stop, step, rounds=False)
    elif choice == 5 and rank:
        graph.call("aten.select.int", value, graph.dim(value), graph.choice((0, -1)), rounds=False)
    elif choice == 6 and rank:
        graph.call("aten.flip.default", value, [graph.dim(value)], rounds=False)
    elif choice == 7:
        wide = [3 if size == 1 and graph.one_of(2) == 0 else -1 for size in shape]
        graph.call("aten.expand.default", value, [2, *wide] if graph.one_of(2) else wide, rounds=False)
    elif choice == 8 and rank:
        pad = graph.choice(([1, 0], [0, 2], [1, 1], [-1, 1]))
        graph.call(
            "aten.constant_pad_nd.default", value, pad, graph.choice((0.0, 1.5)) if value.is_float else 0, rounds=False
        )
    elif choice == 9 and rank > 1:
        graph.call("aten.transpose.int", value, graph.dim(value), graph.dim(value), rounds=False)
    elif choice == 10 and rank:
        graph.call("aten.flatten.using_ints", value, 0, graph.choice((-1, 1)), rounds=False)
    else:
        graph.call(
            "aten.repeat.default",
            value,
            [2, *[1] * rank] if graph.one_of(2) else [*[1] * max(rank - 1, 0), 2],
            rounds=False,
        )


def _several(graph: _Graph) -> None:
    value = graph.pick(lambda value: value.is_float and value.tensor.dim() > 0)
    dim = graph.dim(value)
    size = value.tensor.shape[dim]
    choice = graph.one_of(8)
    if choice == 0:
        graph.call("aten.split.Tensor", value, graph.choice((1, 2, 3)), dim, rounds=False)
    elif choice == 1:
        graph.call("aten.chunk.default", value, graph.choice((2, 3)), dim, rounds=False)
    elif choice == 2 and size > 1:
        graph.call("aten.split_with_sizes.default", value, [1, size - 1], dim, rounds=False)
    elif choice == 3:
        graph.call("aten.unbind.int", value, dim, rounds=False)
    elif choice == 4 and _far_apart(value.tensor, dim, graph):
        graph.call("aten.max.dim", value, dim, graph.one_of(2) == 1, rounds=False)
    elif choice == 5 and _far_apart(value.tensor, dim, graph):
        graph.call("aten.topk.default", value, max(1, size - 1), dim, graph.one_of(2) == 0, rounds=False)
    elif choice == 6 and _far_apart(value.tensor, dim, graph):
        graph.call("aten.sort.default", value, dim, graph.one_of(2) == 1, rounds=False)
    else:
        graph.call("aten.var_mean.correction", value, [dim], correction=0, keepdim=True, reduction=size)


def _far_apart(tensor: torch.Tensor, dim: int, graph: _Graph) -> bool:
    """True if numbers along a dimension differ so much that no rounding exchanges two of them."""
    if graph.dtype != "float32":
        return False
    ordered = tensor.double().sort(dim).values
    gaps = ordered.diff(dim=dim)
    return not gaps.numel() or float(gaps.min()) > _MARGIN * max(1.0, float(ordered.abs().max()))


def _join(graph: _Graph) -> None:
    first = graph.pick()
    if graph.one_of(3) == 2:
        second = graph.pick(lambda value: value.is_float and value.tensor.shape == first.tensor.shape)
        graph.call("aten.stack.default", [first, second], graph.one_of(first.tensor.dim() + 1), rounds=False)
        return
    dim = graph.dim(first)

    def fits(value: _Value) -> bool:
        shape, other = list(first.tensor.shape), list(value.tensor.shape)
        if not value.is_float or len(shape) != len(other):
            return False
        del shape[dim], other[dim]
        return shape == other

    parts = [first, *(graph.pick(fits) for _ in range(graph.choice((1, 2))))]
    graph.call("aten.cat.default", parts, dim, rounds=False)


def _is_mask(value: _Value) -> bool:
    return value.tensor.dtype == torch.bool


def _is_integer(value: _Value) -> bool:
    return not value.is_float and not _is_mask(value)


def _compare(graph: _Graph) -> None:
    target = graph.choice(("aten.gt.Scalar", "aten.le.Scalar", "aten.ne.Scalar"))
    if graph.one_of(2) == 0:
        value = graph.pick()
        apart = graph.dtype == "float32" and float((value.tensor - 0.1).abs().min()) > _MARGIN * (1 + value.largest)
        if not apart:
            raise _InapplicableError
        graph.call(target, value, 0.1, rounds=False)
    else:
        graph.call(target, graph.pick(_is_integer), 1, rounds=False)


def _where(graph: _Graph) -> None:
    mask = graph.pick(_is_mask)
    first = graph.pick(lambda value: value.is_float and _broadcast(mask, value))
    second = graph.pick(lambda value: value.is_float and _broadcast(mask, value) and _broadcast(first, value))
    if graph.one_of(4) == 3:
        graph.call("aten.masked_fill.Scalar", first, mask, -2.0, rounds=False)
    else:
        graph.call("aten.where.self", mask, first, second, rounds=False)


def _mask(graph: _Graph) -> None:
    mask = graph.pick(_is_mask)
    choice = graph.one_of(3)
    if choice == 0:
        graph.call("aten.logical_not.default", mask, rounds=False)
    elif choice == 1:
        other = graph.pick(lambda value: _is_mask(value) and _broadcast(mask, value))
        target = graph.choice(("aten.logical_and.default", "aten.bitwise_or.Tensor", "aten.logical_xor.default"))
        graph.call(target, mask, other, rounds=False)
    else:
        graph.call(graph.choice(("aten.any.dim", "aten.all.dim")), mask, graph.dim(mask), True, rounds=False)


def _integers(graph: _Graph) -> None:
    choice = graph.one_of(6)
    if choice == 0:
        shape = graph.pick(lambda _: True).tensor.shape
        dtype = graph.choice(("int64", "int32"))
        graph.tensor(shape, values=("integers", 0, 3), dtype=dtype, constant=graph.one_of(4) == 3)
    elif choice == 1:
        value = graph.pick(lambda value: value.is_float and value.tensor.dim() > 0)
        dim = graph.dim(value)
        if not _far_apart(value.tensor, dim, graph):
            raise _InapplicableError
        graph.call("aten.argmax.default", value, dim, graph.one_of(2) == 0, rounds=False)
    elif choice == 2:
        value = graph.pick(_is_integer)
        target, number = graph.choice((("aten.add.Tensor", 1), ("aten.remainder.Scalar", 3), ("aten.sub.Tensor", 2)))
        graph.call(target, value, number, rounds=False)
    elif choice == 3:
        graph.call("aten.sum.dim_IntList", graph.pick(_is_mask), [-1], True, rounds=False)
    elif choice == 4:
        graph.call("aten.arange.start", 0, graph.choice((3, 4)), rounds=False)
    else:
        value = graph.pick(lambda value: not value.is_float)
        graph.call("aten.to.dtype", value, graph.choice((torch.int64, torch.int32, torch.bool)), rounds=False)


def _to_float(graph: _Graph) -> None:
    value = graph.pick(lambda value: not value.is_float)
    # A floating-point constant, not a cast: the float64 run must not be cast down to float32.
    graph.calm(graph.call("aten.mul.Tensor", value, graph.weight(1))[0])


def _lookup(graph: _Graph) -> None:
    indices = graph.pick(_is_integer)
    low, high = int(indices.tensor.min()), int(indices.tensor.max())
    if low < 0 or high > 20:
        raise _InapplicableError
    rows = (
        graph.pick(lambda value: value.is_float and value.tensor.dim() == 2 and value.tensor.shape[0] > high)
        if graph.one_of(2)
        else graph.weight(high + 2, 4)
    )
    if graph.one_of(2) or indices.tensor.dim() != 1:
        graph.call("aten.embedding.default", rows, indices, rounds=False)
    else:
        graph.call("aten.index_select.default", rows, 0, indices, rounds=False)


def _filled(graph: _Graph) -> None:
    value = graph.pick()
    choice = graph.one_of(3)
    if choice == 0:
        graph.call("aten.ones_like.default", value, rounds=False)
    elif choice == 1:
        graph.call("aten.zeros_like.default", value, rounds=False)
    else:
        graph.call("aten.full_like.default", value, 0.5, rounds=False)


def _further(graph: _Graph) -> None:
    shape = graph.pick(lambda _: True).tensor.shape
    graph.tensor(shape)


#: The simplest first: shrinking goes that way.
_KINDS: tuple[Kind, ...] = (
    _exact_unary,
    _binary,
    _smooth,
    _view,
    _several,
    _join,
    _scalar,
    _twice,
    _reduce,
    _linear,
    _normalize,
    _binary_new,
    _binary,
    _view,
    _convolution,
    _pool,
    _matmul,
    _with_domain,
    _quotient,
    _axpy,
    _batch_norm,
    _compare,
    _where,
    _integers,
    _mask,
    _to_float,
    _lookup,
    _cumsum,
    _filled,
    _further,
)


# -- whole graphs ----------------------------------------------------------------------------------------------------

_Numbers = tuple[int, ...]


@st.composite
def graphs(draw: Any) -> Recipe:
    """A strategy of random graphs whose results are well conditioned."""
    number = st.integers(0, 255)
    step = st.tuples(st.integers(0, len(_KINDS) - 1), st.tuples(*[number] * _NUMBERS))
    few = st.lists(step, min_size=2, max_size=8)
    many = st.lists(step, min_size=9, max_size=25)
    plan = draw(st.one_of(few, few, many))
    dtype = draw(st.sampled_from(("float32",) * 7 + ("float16",)))
    shape = draw(st.sampled_from(_SHAPES))
    others = draw(st.lists(st.sampled_from(("", "", "int64", "bool", "int32")), max_size=3))
    returned = draw(st.lists(number, max_size=4))
    return build(plan, dtype if len(plan) <= 6 else "float32", shape, others, returned)


def build(
    plan: Sequence[tuple[int, _Numbers]],
    dtype: str,
    shape: Sequence[int],
    others: Sequence[str],
    returned: Sequence[int],
) -> Recipe:
    """The graph of some numbers; `others` are the dtypes of further inputs of the same shape, "" for that of the first.

    Ends the example, as `hypothesis.assume` does, if nothing can be returned.
    """
    graph = _Graph(dtype)
    for other in ("", *others):
        values: Values = ("integers", 0, 1 if other == "bool" else 3) if other else ("normal",)
        graph.tensor(shape, dtype=other or dtype, values=values)
    for kind, numbers in plan:
        before = len(graph.tensors), len(graph.steps), len(graph.values)
        graph.use(numbers)
        try:
            _KINDS[kind](graph)
        except _InapplicableError:
            del graph.tensors[before[0] :], graph.steps[before[1] :], graph.values[before[2] :]
    assume(graph.steps)
    used = {ref for step in graph.steps for ref in step.references()}
    # Results that no step uses are returned; unused inputs and constants need not be.
    made = [value for value in graph.values if value.ref.name.startswith("y")]
    outputs = [value for value in made if value.ref not in used]
    # Further outputs: values in the middle, inputs, constants, the same value twice.
    outputs += [graph.values[number % len(graph.values)] for number in returned]
    recipe = Recipe(
        tuple(graph.tensors),
        tuple(graph.steps),
        tuple(value.ref for value in outputs),
        reduction_length=graph.reduction,
    )
    kept = [(value, by) for value, by in zip(outputs, enlarged(recipe), strict=True) if by <= _ENLARGED]
    assume(any(value.ref.name.startswith("y") for value, _ in kept))
    depth = max(max(value.depth, math.ceil(by)) for value, by in kept)
    return Recipe(
        recipe.tensors,
        recipe.steps,
        tuple(value.ref for value, _ in kept),
        reduction_length=graph.reduction,
        depth=max(1, depth),
    )


#: The size of the roundings that are tried: those of float32.
_UNIT = 2.0**-24
#: Operators that add up: their loss where large terms cancel is visible when their inputs are rounded, too.
_SUMMING = ("linear", "matmul", "conv", "norm", "softmax", "mean", "sum", "pool", "addmm")
#: Operators that subtract from 1 inside: their error is a rounding of the input, not of the (perhaps tiny) result.
_TAILS = ("aten.gelu.default", "aten.elu.default", "aten.mish.default", "aten.softplus.default")


def enlarged(recipe: Recipe) -> list[float]:
    """The roundings by which each output is off, relative to its largest element, if every result is rounded."""
    exact = _run(recipe, None)
    worst = [0.0] * len(exact)
    for seed in (1, 2):
        noisy = _run(recipe, torch.Generator().manual_seed(seed))
        for index, (right, moved) in enumerate(zip(exact, noisy, strict=True)):
            if not right.is_floating_point():
                worst[index] = max(worst[index], 0.0 if torch.equal(right, moved) else math.inf)
                continue
            distance, scale = float((moved - right).abs().max()), float(right.abs().max())
            if distance:
                worst[index] = max(worst[index], distance / (scale * _UNIT) if scale else math.inf)
    return worst


def _run(recipe: Recipe, noise: torch.Generator | None) -> list[torch.Tensor]:
    """The outputs in float64; with `noise`, all that is computed is off by a rounding, up or down at random."""
    values: dict[str, Any] = {}
    for name, tensor in recipe.tensors:
        made = tensor.make()
        values[name] = made.double() if made.is_floating_point() else made

    def off(value: Any, by: torch.Tensor | None = None) -> Any:
        if isinstance(value, tuple | list):
            return [off(item) for item in value]
        if noise is None or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        signs = torch.randint(0, 2, value.shape, generator=noise, dtype=torch.float64) * 2 - 1
        return value + _UNIT * signs * (value if by is None else by)

    def resolve(value: Any) -> Any:
        if isinstance(value, Ref):
            found = values[value.name]
            return found if value.index is None else found[value.index]
        return [resolve(item) for item in value] if isinstance(value, tuple) else value

    for step in recipe.steps:
        arguments = [resolve(value) for value in step.args]
        if any(name in step.target for name in _SUMMING):
            arguments = [off(value) if isinstance(value, torch.Tensor) else value for value in arguments]
        named = {key: resolve(value) for key, value in step.kwargs}
        result = find_target(step.target)(*arguments, **named)
        values[step.name] = off(result, arguments[0].abs() if step.target in _TAILS else None)
    return [resolve(ref) for ref in recipe.outputs]
