"""Matrix products: linear layers and general ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.constraints import matrix_weight
from delegatekit_toolkit.quantized import known_data
from delegatekit_toolkit.sizes import Size, largest
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Tensor
from ..ir.types import DataType
from .common import as_numbers
from .conditions import FLOATS, few_changing, short_loops
from .program import Lower, ProgramBuilder

#: Axes of the rows that the runtime's linear layer is used with.
_LINEAR_RANKS: Final = (2, 3)


def few_terms(call: Call) -> str | None:
    """At most 240000 terms of each result: four at a time."""
    factor = next(call[name] for name in ("input", "mat1", "batch1", "self") if call.has(name))
    return short_loops(-(-largest(shape_of(factor)[-1]) // 4))


def _linear(b: ProgramBuilder, call: Call) -> Tensor:
    x, weight = b.tensor(call["input"]), b.value(call["weight"])
    bias = b.weight(call["bias"])
    columns = weight.shape[0]
    if weight.data is None:
        right = b.call("aten.permute_copy.default", [weight, (1, 0)], (weight.shape[1], columns))
        return _added(b, _rows_times(b, "aten.mm.default", x, [right], columns), bias)
    return linear(b, x, weight, bias)


def linear(b: ProgramBuilder, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., K) @ weight (N, K)^T + bias (N,), with a constant weight."""
    columns = weight.shape[0]
    packed = bias if bias is not None and bias.data is not None else None
    if x.rank in _LINEAR_RANKS:
        product = b.call("aten.linear.default", [x, weight, packed], (*x.shape[:-1], columns))
    else:
        product = _rows_times(b, "aten.linear.default", x, [weight, packed], columns)
    return product if packed is bias else _added(b, product, bias)


def _rows_times(b: ProgramBuilder, operator: str, x: Tensor, others: list[Tensor | None], columns: Size) -> Tensor:
    """A product of all rows of `x` as one matrix."""
    rows = math.prod(x.shape[:-1])
    product = b.call(operator, [b.view(x, (rows, x.shape[-1])), *others], (rows, columns))
    return b.view(product, (*x.shape[:-1], columns))


def _added(b: ProgramBuilder, product: Tensor, bias: Tensor | None) -> Tensor:
    return product if bias is None else b.call("aten.add.Tensor", [product, b.computed(bias), 1], product.shape)


def _product(operator: str, right: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        return b.call(operator, [b.tensor(call["self"]), b.value(call[right])], b.shape(call))

    return lower


def _scaled(b: ProgramBuilder, x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else b.call("aten.mul.Tensor", [x, b.scalar(factor, x.datatype)], x.shape)


def _addmm(b: ProgramBuilder, call: Call) -> Tensor:
    left, right, bias = b.tensor(call["mat1"]), b.value(call["mat2"]), b.value(call["self"])
    alpha, beta = call["alpha"], call["beta"]
    if right.data is not None and alpha == beta == 1 and bias.shape == (right.shape[1],):
        return linear(b, left, _transposed(b, call["mat2"], right.datatype), bias)
    return _sum(b, b.call("aten.mm.default", [left, right], b.shape(call)), alpha, bias, beta)


def _transposed(b: ProgramBuilder, matrix: Operand, datatype: DataType) -> Tensor:
    """A known matrix with its axes exchanged, as integers if it is made of some that allow it."""
    data, own = known_data(matrix)
    if own is None or own.group is not None:
        return b.constant(as_numbers(data, own).t())
    return b.integers(data.t(), replace(own, axis=None if own.axis is None else 1 - own.axis), datatype)


def _sum(b: ProgramBuilder, product: Tensor, alpha: float, bias: Tensor, beta: float) -> Tensor:
    """alpha * product + beta * bias; with beta 0 PyTorch does not look at the bias."""
    product = _scaled(b, product, alpha)
    return product if beta == 0 else _added(b, product, _scaled(b, b.computed(bias), beta))


def _flattened(call: Call) -> bool:
    return call["input"].rank not in _LINEAR_RANKS or not call["weight"].is_constant


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "linear.default",
        _linear,
        FLOATS,
        matrix_weight(),
        few_terms,
        few_changing("input", _flattened, "it has not 2 or 3 axes or the weight is computed"),
        keep=True,
        runs=(),
    ),
    row("mm.default", _product("aten.mm.default", "mat2"), FLOATS, few_terms),
    row("bmm.default", _product("aten.bmm.default", "mat2"), FLOATS, few_terms),
    row("addmm.default", _addmm, FLOATS, few_terms),
)
