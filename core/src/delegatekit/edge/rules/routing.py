"""The operators of mixtures of experts: counts of tokens, and rows times the matrix of their group."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ..builder import EdgeBuilder, Value
from ..draft import Draft
from ..sizes import is_static
from .table import Family
from .writing import convert, slice_dim, view

aten = torch.ops.aten

ROUTING = Family("routing")


@ROUTING.rule(aten.histc.default)
def _histogram(b: EdgeBuilder, call: Draft) -> Value:
    """The number of elements in each of `bins` parts of the range; values outside, and NaN, do not count."""
    bins, low, high = call["bins", "min", "max"]
    count = 1
    for size in b.shape(call["self"]):
        count = count * size
    x = view(b, call["self"], (count,))
    dtype = b.dtype(x)
    bounds = _data_bounds(b, x) if low == high else (low, high)
    low, high = (b.constant(torch.tensor(item, dtype=dtype)) if not isinstance(item, Node) else item for item in bounds)
    inside = b.call(aten.logical_and.default, b.call(aten.ge.Tensor, x, low), b.call(aten.le.Tensor, x, high))
    share = b.call(aten.div.Tensor, b.call(aten.sub.Tensor, x, low), b.call(aten.sub.Tensor, high, low))
    # In the order of PyTorch's kernel, so that bin boundaries round alike.
    place = b.call(aten.mul.Scalar, share, bins)
    place = b.call(aten.where.self, inside, place, b.constant(torch.tensor(0, dtype=dtype)))
    # The upper bound belongs to the last bin.
    place = b.call(aten.clamp.default, convert(b, place, torch.int64), None, bins - 1)
    zeros = b.call(aten.full.default, [bins], 0, dtype=dtype)
    return b.call(aten.scatter_add.default, zeros, 0, place, convert(b, inside, dtype))


def _data_bounds(b: EdgeBuilder, x: Node) -> tuple[Node, Node]:
    """The smallest and largest element; one less and one more if they are equal."""
    low, high = b.call(aten.amin.default, x, [0]), b.call(aten.amax.default, x, [0])
    equal = b.call(aten.eq.Tensor, low, high)
    wider = b.call(aten.sub.Scalar, low, 1), b.call(aten.add.Scalar, high, 1)
    return b.call(aten.where.self, equal, wider[0], low), b.call(aten.where.self, equal, wider[1], high)


@ROUTING.rule("transformers.grouped_mm_fallback.default")
def _of_transformers(b: EdgeBuilder, call: Draft) -> Value:
    return _grouped_product(b, *call["input", "weight", "offs"])


@ROUTING.rule(aten._grouped_mm.default)
def _of_pytorch(b: EdgeBuilder, call: Draft) -> Value:
    x, weight, ends = call["self", "mat2", "offs"]
    if call["bias"] is not None or call["out_dtype"] is not None or ends is None:
        return NotImplemented
    return _grouped_product(b, x, weight, ends)


def _grouped_product(b: EdgeBuilder, x: Node, weight: Node, ends: Any) -> Value:
    """Rows up to `ends[0]` times `weight[0]`, those up to `ends[1]` times `weight[1]`, ..; zeros for the rest.

    The number of rows of a group is known at run time only: all rows are multiplied with each matrix.
    """
    if (len(b.shape(x)), len(b.shape(weight))) != (2, 3) or not is_static(b.shape(weight)):
        return NotImplemented
    rows, (groups, _, columns) = b.shape(x)[0], b.shape(weight)
    numbers = b.call(aten.unsqueeze.default, b.call(aten.arange.default, rows), 1)
    before = b.call(aten.lt.Tensor, numbers, b.call(aten.unsqueeze.default, ends, 0))
    result = b.call(aten.full.default, [rows, columns], 0, dtype=b.dtype(x))
    for group in reversed(range(groups)):
        product = b.call(aten.mm.default, x, b.call(aten.select.int, weight, 0, group))
        # Rows before the end of this group: those of earlier ones are replaced after that.
        result = b.call(aten.where.self, slice_dim(b, before, 1, group, group + 1), product, result)
    return result
