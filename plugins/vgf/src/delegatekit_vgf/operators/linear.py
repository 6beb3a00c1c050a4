"""Matrix products, linear layers and attention."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.composed.arithmetic import weighted_sum
from delegatekit_toolkit.constraints import matrix_weight, types_of
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.narrowing import numbers_fit
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import DType, Matmul

from ..ir.builder import Lower, Value, VgfBuilder
from .common import DIALECT, REAL, REALS, add, mul, result_type, softmax, tensor


def product(b: VgfBuilder, x: Value, y: Value) -> Value:
    """A product of two stacks of matrices with the same batches. Sums of float16 have float32."""
    *batches, rows, inner = x.shape
    columns, count = y.shape[-1], math.prod(batches)
    left = b.contiguous(b.shaped(x, (count, rows, inner)))
    right = b.contiguous(b.shaped(y, (count, inner, columns)))
    zero = b.graph.constant([0], left.dtype)
    sums = DType.FP32 if left.dtype == DType.FP16 else left.dtype
    made = b.emit(Matmul(), (left, right, zero, zero), (count, rows, columns), sums, "product")
    return b.shaped(b.cast(Value.dense(made), left.dtype), (*batches, rows, columns))


def transposed(x: Value) -> Value:
    """The last two axes swapped."""
    *batches, last, inner = identity(len(x.order))
    return x.permuted((*batches, inner, last))


def _linear(b: VgfBuilder, call: Call) -> Value:
    x, weight, bias = tensor(b, call, "input"), tensor(b, call, "weight"), call["bias"]
    rows = b.shaped(x, (1, math.prod(x.shape[:-1]), x.shape[-1]))
    made = product(b, rows, b.shaped(transposed(weight), (1, x.shape[-1], weight.shape[0])))
    made = made if bias is None else add(b, made, b.value(bias))
    return b.shaped(made, call.result.shape)


def _product(other: str) -> Lower:
    def lower(b: VgfBuilder, call: Call) -> Value:
        return product(b, tensor(b, call), tensor(b, call, other))

    return lower


def _addmm(first: str, second: str) -> Lower:
    def lower(b: VgfBuilder, call: Call) -> Value:
        if call["alpha"]:
            made = product(b, tensor(b, call, first), tensor(b, call, second))
        else:  # PyTorch does not compute it, nor the NaN in it.
            made = b.array(np.zeros(call.result.shape), result_type(call))
        addend = DIALECT.number(b, tensor(b, call))
        return weighted_sum(DIALECT.number(b, made), addend, call["alpha"], call["beta"]).value

    return lower


# -- attention ---------------------------------------------------------------------------------------------------------


def plain_attention(call: Call) -> str | None:
    """Without dropout, grouped heads and masks, of which `is_causal` is one."""
    if call["attn_mask"] is not None:
        return "attn_mask is given"
    if given := [f"{name} = {call[name]}" for name in ("dropout_p", "enable_gqa", "is_causal") if call[name]]:
        return ", ".join(given)
    batches = {tuple(call[name].shape[:-2]) for name in ("query", "key", "value")}
    return None if len(batches) == 1 else f"query, key and value have the batches {sorted(batches)}"


def _attention(b: VgfBuilder, call: Call) -> Value:
    query, key, value = (tensor(b, call, name) for name in ("query", "key", "value"))
    scale = 1 / math.sqrt(query.shape[-1]) if call["scale"] is None else call["scale"]
    scores = product(b, mul(b, query, scale), transposed(key))
    return product(b, softmax(b, scores, len(scores.order) - 1), value)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("linear.default", _linear, REAL, matrix_weight(), keep=True),
    row("mm.default bmm.default", _product("mat2"), REAL),
    row("addmm.default", _addmm("mat1", "mat2"), REAL, numbers_fit),
    row("baddbmm.default", _addmm("batch1", "batch2"), REAL, numbers_fit, keep=True),
    row(
        "scaled_dot_product_attention.default",
        _attention,
        types_of("query", *REALS),
        plain_attention,
        numbers_fit,
        keep=True,
    ),
)
