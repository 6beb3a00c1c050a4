"""Matrix products, linear layers and attention."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.composed.arithmetic import weighted_sum
from delegatekit_toolkit.constraints import matrix_weight, types_of
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from ..ir.sizes import is_fixed, sizes_of
from .common import DIALECT, FLOATS, REAL, add, mul, tensor


def product(b: ModelBuilder, x: Value, y: Value, *, transpose_y: bool = False) -> Value:
    """A product of matrices, or of stacks of them that broadcast."""
    made = b.op("matmul", x, y, transpose_a=False, transpose_b=transpose_y)
    if x.rank < y.rank:
        return made
    batches = x.shape[:-2] if y.rank == 2 else made.shape[:-2]
    return b.declare(made, (*batches, x.shape[-2], y.shape[-2 if transpose_y else -1]))


def matrix_product(b: ModelBuilder, x: Value, other: Operand) -> Value:
    """A product with a tensor. Constant matrices are turned here, as OpenVINO has weights: of one that is both a factor
    and a weight it takes the same form for both."""
    known = other.constant
    if known is None or known.dim() != 2:
        return product(b, x, b.value(other))
    return product(b, x, b.constant(known.t()), transpose_y=True)


def _linear(b: ModelBuilder, call: Call) -> Value:
    made, bias = product(b, tensor(b, call, "input"), tensor(b, call, "weight"), transpose_y=True), call["bias"]
    return made if bias is None else add(b, made, b.value(bias))


def _product(other: str) -> Lower:
    def lower(b: ModelBuilder, call: Call) -> Value:
        return matrix_product(b, tensor(b, call), call[other])

    return lower


def _addmm(first: str, second: str) -> Lower:
    def lower(b: ModelBuilder, call: Call) -> Value:
        made = DIALECT.number(b, matrix_product(b, tensor(b, call, first), call[second]))
        return weighted_sum(made, DIALECT.number(b, tensor(b, call)), call["alpha"], call["beta"]).value

    return lower


# -- attention ---------------------------------------------------------------------------------------------------------


def plain_attention(call: Call) -> str | None:
    """Without dropout and grouped heads; masks are absent or computed, and add numbers."""
    if call["dropout_p"] or call["enable_gqa"] or call["is_causal"]:
        return "dropout, is_causal or grouped heads"
    query, key, value = (call[name] for name in ("query", "key", "value"))
    batches = {sizes_of(operand.shape[:-2]) for operand in (query, key, value)}
    if not 3 <= query.rank <= 4 or len(batches) > 1 or not is_fixed(query.shape[-1]):
        return f"query {query.shape}, key {key.shape} and value {value.shape} have other batches, or not 3 or 4 axes"
    return "a mask" if call["attn_mask"] is not None else None


def _attention(b: ModelBuilder, call: Call) -> Value:
    query, key, value = (tensor(b, call, name) for name in ("query", "key", "value"))
    scale = call["scale"]
    size = query.shape[-1]
    assert isinstance(size, int)
    scores = product(b, mul(b, query, 1 / math.sqrt(size) if scale is None else scale), key, transpose_y=True)
    shares = b.declare(b.op("softmax", scores, axis=scores.rank - 1), scores.shape)
    return product(b, shares, value)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("linear.default", _linear, REAL, matrix_weight(), keep=True),
    row("mm.default bmm.default", _product("mat2"), REAL),
    row("addmm.default", _addmm("mat1", "mat2"), REAL),
    row("baddbmm.default", _addmm("batch1", "batch2"), REAL, keep=True),
    row(
        "scaled_dot_product_attention.default",
        _attention,
        types_of("query", *FLOATS),
        plain_attention,
        keep=True,
    ),
)
