"""Matrix products, linear layers and attention."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.composed import along
from delegatekit_toolkit.constraints import matrix_weight, types_of
from delegatekit_toolkit.expressions import is_fixed, sizes_of
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of
from ..ir.types import MOST_AXES, DataType
from ..targets import IOS18
from .common import FLOATS, REAL, add, binary, composed, mul, reduced, reshaped, tensor, where
from .compression import weight_of
from .program import Lower, ProgramBuilder

#: Axes that MIL's linear takes.
_LINEAR_RANKS: Final = (1, 2, 3)
#: What hides a score: softmax makes 0 of it, and a sum with a score stays within the type.
_HIDDEN: Final = {DataType.FLOAT16: -3e4, DataType.FLOAT32: -1e30}


def _matmul(b: ProgramBuilder, x: Var, y: Var, *, transpose_y: bool = False) -> Var:
    return b.call("matmul", x=x, y=y, transpose_y=transpose_y)


def _linear(b: ProgramBuilder, call: Call) -> Var:
    x, weight, bias = tensor(b, call, "input"), weight_of(b, call), call["bias"]
    if not call["weight"].is_known or (bias is not None and not bias.is_constant):
        product = _matmul(b, reshaped(b, x, (-1, x.shape[-1])) if len(x.shape) == 1 else x, weight, transpose_y=True)
        product = reshaped(b, product, call.result.shape)
        return product if bias is None else add(b, product, b.value(bias))
    return constant_linear(b, x, weight, None if bias is None else b.value(bias))


def constant_linear(b: ProgramBuilder, x: Var, weight: Var, bias: Var | None) -> Var:
    """x (..., K) @ weight (N, K)^T + bias (N,), with constants."""
    rows = tuple(x.shape[:-1])
    if len(x.shape) not in _LINEAR_RANKS:
        x = reshaped(b, x, (math.prod(rows), x.shape[-1]))
    more = {} if bias is None else {"bias": bias}
    return reshaped(b, b.call("linear", x=x, weight=weight, **more), (*rows, weight.shape[0]))


def _product(right: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Var:
        return _matmul(b, tensor(b, call), tensor(b, call, right))

    return lower


def _addmm(b: ProgramBuilder, call: Call) -> Var:
    return _sum(b, call, _matmul(b, tensor(b, call, "mat1"), tensor(b, call, "mat2")))


def _addbmm(b: ProgramBuilder, call: Call) -> Var:
    products = _matmul(b, tensor(b, call, "batch1"), tensor(b, call, "batch2"))
    return _sum(b, call, reduced(b, "reduce_sum", products, (0,), keep=False))


def _sum(b: ProgramBuilder, call: Call, product: Var) -> Var:
    """alpha * product + beta * self; with beta 0 PyTorch does not look at self."""
    alpha, beta = call["alpha"], call["beta"]
    if alpha != 1:
        product = mul(b, product, alpha)
    if beta == 0:
        return product
    bias = tensor(b, call)
    return add(b, product, bias if beta == 1 else mul(b, bias, beta))


def four_axes(call: Call) -> str | None:
    """At most 4 axes: differences have one more."""
    most = max(call[name].rank for name in ("x1", "x2"))
    return f"operands of {most} axes: 4 is the maximum" if most > MOST_AXES - 1 else None


# -- attention ---------------------------------------------------------------------------------------------------------


def plain_attention(call: Call) -> str | None:
    """Without dropout, grouped heads and is_causal; query, key and value have 3 to 5 axes and equal batches."""
    if call["dropout_p"] or call["is_causal"] or call["enable_gqa"]:
        return "dropout, is_causal or grouped heads"
    query, key, value = (call[name] for name in ("query", "key", "value"))
    batches = {sizes_of(operand.shape[:-2]) for operand in (query, key, value)}
    if not is_fixed(query.shape[-1]):
        return "the size of the heads changes from call to call"
    if not 3 <= query.rank <= 5 or len(batches) > 1:
        return f"query {query.shape}, key {key.shape} and value {value.shape} have other batches, or not 3 to 5 axes"
    return None


def _attention(b: ProgramBuilder, call: Call) -> Var:
    query, key, value = (tensor(b, call, name) for name in ("query", "key", "value"))
    scale, mask = call["scale"], call["attn_mask"]
    usual = 1 / math.sqrt(query.shape[-1])
    scale = usual if scale is None else scale
    if b.target >= IOS18 and mask is None:
        if b.number(scale / usual, datatype_of(query)) != 1:
            query = mul(b, query, scale / usual)
        return b.call("scaled_dot_product_attention", query=query, key=key, value=value)
    scores = _matmul(b, mul(b, query, scale), key, transpose_y=True)
    if mask is None:
        return _matmul(b, b.call("softmax", x=scores), value)
    hidden = _HIDDEN[b.result_type(call)]
    mask_value = b.value(mask)
    if mask.dtype_name == "bool":
        seen = mask_value
        scores = where(b, seen, scores, hidden)
    else:
        # A mask of -infinity hides; so does what float16 does not have.
        seen = binary(b, "greater", mask_value, hidden)
        scores = add(b, scores, binary(b, "maximum", mask_value, hidden))
    result = _matmul(b, b.call("softmax", x=scores), value)
    if not _may_hide_rows(call):
        return result
    any_seen = reduced(b, "reduce_max", b.cast(seen, DataType.INT32), (len(seen.shape) - 1,))
    return mul(b, result, b.cast(expanded_rows(b, any_seen, result), b.result_type(call)))


def expanded_rows(b: ProgramBuilder, rows: Var, like: Var) -> Var:
    """With as many axes as another value."""
    return reshaped(b, rows, (1,) * (len(like.shape) - len(rows.shape)) + tuple(rows.shape))


def _may_hide_rows(call: Call) -> bool:
    """True if the mask may hide all of a row: PyTorch's result is 0 there."""
    known = call["attn_mask"].constant
    if known is None:
        return True
    seen = known if known.dtype.is_signed is False else known > _HIDDEN[DataType.FLOAT16]
    return not bool(seen.any(-1).all())


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("linear.default", _linear, REAL, matrix_weight(), keep=True),
    row("mm.default", _product("mat2"), REAL),
    row("bmm.default", _product("mat2"), REAL),
    row("addmm.default", _addmm, REAL),
    row("addbmm.default", _addbmm, REAL, keep=True),
    row("_cdist_forward.default", composed(along.cdist, "x1 x2", "p"), REAL, four_axes),
    row(
        "scaled_dot_product_attention.default",
        _attention,
        types_of("query", *FLOATS),
        types_of("attn_mask", *FLOATS, "bool"),
        plain_attention,
        keep=True,
    ),
)
