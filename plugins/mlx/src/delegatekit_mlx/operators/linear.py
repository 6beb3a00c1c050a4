"""Matrix products, linear layers and attention."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.composed.arithmetic import weighted_sum
from delegatekit_toolkit.constraints import matrix_weight
from delegatekit_toolkit.expressions import broadcast
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Value
from .common import DIALECT, REAL, tensor, transposed


def product(b: GraphBuilder, x: Value, y: Value, bias: Value | None = None) -> Value:
    """A product of matrices, or of stacks of them that broadcast, plus a bias that broadcasts."""
    shape = (*broadcast(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
    return b.op(schema.AddmmNode, shape, x.dtype, mat1=x, mat2=y, bias=bias)


def turned(b: GraphBuilder, x: Value) -> Value:
    """The last two axes in the other order."""
    return transposed(b, x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _linear(b: GraphBuilder, call: Call) -> Value:
    x, weight, bias = tensor(b, call, "input"), tensor(b, call, "weight"), call["bias"]
    row_of_one = x if x.rank > 1 else b.reshape(x, (1, *x.shape))
    made = product(b, row_of_one, turned(b, weight), None if bias is None else b.value(bias))
    return b.reshape(made, call.result.shape)


def _product(b: GraphBuilder, call: Call) -> Value:
    return product(b, tensor(b, call), tensor(b, call, "mat2"))


def _addmm(first: str, second: str) -> Lower:
    def lower(b: GraphBuilder, call: Call) -> Value:
        x, y, addend = (tensor(b, call, name) for name in (first, second, "self"))
        if call["alpha"] == 1 and call["beta"] == 1:
            return product(b, x, y, addend)
        made = DIALECT.number(b, product(b, x, y))
        return weighted_sum(made, DIALECT.number(b, addend), call["alpha"], call["beta"]).value

    return lower


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("linear.default", _linear, REAL, matrix_weight(), keep=True),
    row("mm.default bmm.default", _product, REAL),
    row("addmm.default", _addmm("mat1", "mat2"), REAL),
    row("baddbmm.default", _addmm("batch1", "batch2"), REAL, keep=True),
)
