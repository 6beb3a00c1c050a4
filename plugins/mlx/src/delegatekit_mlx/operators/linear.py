"""Matrix products, linear layers and attention."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.composed.arithmetic import weighted_sum
from delegatekit_toolkit.constraints import matrix_weight, types_of
from delegatekit_toolkit.expressions import broadcast, is_fixed, sizes_of
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Value
from .common import DIALECT, FLOATS, REAL, add, binary, fixed, inserted, reduced, tensor, transposed, where
from .weights import quantized_product


def product(b: GraphBuilder, x: Value, y: Value, bias: Value | None = None) -> Value:
    """A product of matrices, or of stacks of them that broadcast, plus a bias that broadcasts."""
    shape = (*broadcast(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
    return b.op(schema.AddmmNode, shape, x.dtype, mat1=x, mat2=y, bias=bias)


def turned(b: GraphBuilder, x: Value) -> Value:
    """The last two axes in the other order."""
    return transposed(b, x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _linear(b: GraphBuilder, call: Call) -> Value:
    x = tensor(b, call, "input")
    bias = None if call["bias"] is None else tensor(b, call, "bias")
    rows = x if x.rank > 1 else b.reshape(x, (1, *x.shape))
    made = quantized_product(b, rows, call["weight"])
    if made is None:
        made = product(b, rows, turned(b, tensor(b, call, "weight")), bias)
    elif bias is not None:
        made = add(b, made, bias)
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


# -- attention ---------------------------------------------------------------------------------------------------------


def plain_attention(call: Call) -> str | None:
    """Of three or four axes, without dropout; heads are grouped on four axes only, and a causal one is square."""
    if call["dropout_p"]:
        return "dropout"
    query, key, value = (call[name] for name in ("query", "key", "value"))
    if not 3 <= query.rank <= 4 or query.rank != key.rank or key.rank != value.rank:
        return f"query {query.shape}, key {key.shape} and value {value.shape}"
    if call["is_causal"] and sizes_of(query.shape[-2:-1]) != sizes_of(key.shape[-2:-1]):
        return "a causal mask that is not square"
    if len({sizes_of(item.shape[:1]) for item in (query, key, value)}) > 1:
        return "batches of different sizes"
    if query.rank == 4:
        heads = [item.shape[1] for item in (query, key, value)]
        if not fixed(heads) or (len(set(heads)) > 1 and not call["enable_gqa"]) or heads[1] != heads[2]:
            return f"{heads} heads"
    return None if is_fixed(query.shape[-1]) else "heads whose size changes from call to call"


def known_mask(call: Call) -> str | None:
    """A mask has the queries' type, or is boolean, and as many axes as they at most."""
    mask, query = call["attn_mask"], call["query"]
    if mask is None:
        return None
    if mask.dtype is not torch.bool and mask.dtype is not query.dtype:
        return f"a mask of {mask.dtype_name}"
    return None if mask.rank <= query.rank else f"a mask {mask.shape}"


def _attention(b: GraphBuilder, call: Call) -> Value:
    query, key, value = (tensor(b, call, name) for name in ("query", "key", "value"))
    size = query.shape[-1]
    assert isinstance(size, int)
    scale = 1 / math.sqrt(size) if call["scale"] is None else call["scale"]
    mask = None if call["attn_mask"] is None else tensor(b, call, "attn_mask")
    if query.rank == 3:
        query, key, value = (inserted(b, item, 1) for item in (query, key, value))
        mask = inserted(b, mask, 1) if mask is not None and mask.rank == 3 else mask
    made = b.op(
        schema.SdpaNode,
        (*query.shape[:-1], value.shape[-1]),
        query.dtype,
        q=query,
        k=key,
        v=value,
        scale=scale,
        mask=mask,
        causal=bool(call["is_causal"]),
    )
    if mask is not None and not _has_all_rows(call["attn_mask"]):
        made = where(b, _rows_left(b, mask), made, 0.0)
    return b.reshape(made, call.result.shape)


def _has_all_rows(mask: Operand) -> bool:
    """True if a known mask leaves something of each row."""
    known = mask.constant
    if known is None:
        return False
    left = known if known.dtype is torch.bool else known > -math.inf
    return bool(left.any(-1).all()) if known.dim() else bool(left)


def _rows_left(b: GraphBuilder, mask: Value) -> Value:
    """The rows of which a mask leaves something: of others PyTorch makes 0."""
    left = mask if mask.dtype is torch.bool else binary(b, schema.GreaterNode, mask, -math.inf, torch.bool)
    return reduced(b, schema.AnyNode, left, [mask.rank - 1]) if mask.rank else left


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("linear.default", _linear, REAL, matrix_weight(), keep=True),
    row("mm.default bmm.default", _product, REAL),
    row("addmm.default", _addmm("mat1", "mat2"), REAL),
    row("baddbmm.default", _addmm("batch1", "batch2"), REAL, keep=True),
    row(
        "scaled_dot_product_attention.default",
        _attention,
        types_of("query", *FLOATS),
        plain_attention,
        known_mask,
        keep=True,
    ),
)
