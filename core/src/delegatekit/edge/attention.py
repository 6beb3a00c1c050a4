"""Scaled dot-product attention in pieces that hardware has: matmul, add, softmax, matmul.

PyTorch's own decomposition guards every layer against fully masked rows with comparisons that no accelerator takes.
Here a mask becomes a finite additive bias once per program (equal nodes merge), and the guard, where a mask can hide
a whole row, is one multiplication.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from .builder import Builder, Value
from .rules import aten, convert, rule, swap
from .sizes import is_static

#: Added to a masked score: adding any sane score changes nothing, and exp() of it is exactly 0 beside a visible one.
_MASKED = -1e30


@rule(aten.scaled_dot_product_attention.default)
def _attention(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    query, key, values, mask, dropout, causal = (*args, *(None, 0.0, False)[len(args) - 3 :])[:6]
    mask = kwargs.get("attn_mask", mask)
    causal = kwargs.get("is_causal", causal)
    scale = kwargs.get("scale")
    if kwargs.get("dropout_p", dropout):
        b.refuse("attention with dropout is random", hint="call model.eval() before torch.export")
    dtype = b.dtype(query)
    if not dtype.is_floating_point or len(b.shape(query)) < 2:
        return NotImplemented
    # Scores of narrow dtypes are computed, summed up and weighed in float32, as PyTorch's kernels do.
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    query, key, values = (convert(b, item, wide) for item in (query, key, values))
    if mask is not None and b.dtype(mask) != torch.bool:
        mask = convert(b, mask, wide)
    if kwargs.get("enable_gqa", False):
        key, values = (_repeat_heads(b, tensor, b.shape(query)[-3]) for tensor in (key, values))
    if scale is None:
        scale = 1.0 / math.sqrt(b.shape(query)[-1])
    bias, visible = _causal(b, query, key) if causal else _bias(b, mask)
    query = b.call(aten.mul.Scalar, query, scale)
    scores = b.call(aten.matmul.default, query, swap(b, key, -1, -2))
    if bias is not None:
        scores = b.call(aten.add.Tensor, scores, bias)
    weights = b.call(aten._softmax.default, scores, -1, False)
    known = value if wide == dtype else None
    result = b.call(aten.matmul.default, weights, values, value=known)
    if visible is not None:
        result = b.call(aten.mul.Tensor, result, convert(b, visible, wide), value=known)
    return convert(b, result, dtype)


def _repeat_heads(b: Builder, x: Node, heads: int) -> Node:
    """(..., h, L, E) -> (..., heads, L, E), each head repeated in place (grouped-query attention)."""
    shape = b.shape(x)
    count = heads // shape[-3]
    if count == 1:
        return x
    spread = b.call(aten.unsqueeze.default, x, len(shape) - 2)
    spread = b.call(aten.expand.default, spread, [*shape[:-2], count, *shape[-2:]])
    return b.call(aten.view.default, spread, [*shape[:-3], heads, *shape[-2:]])  # type: ignore[no-any-return]


def _causal(b: Builder, query: Node, key: Node) -> tuple[Node, None]:
    """Bias (L, S) of the causal mask: aligned at the top left, so that no row is fully masked."""
    length, source = b.shape(query)[-2], b.shape(key)[-2]
    if not is_static((length, source)):
        rows = b.call(aten.unsqueeze.default, b.call(aten.arange.default, length), 1)
        seen = b.call(aten.le.Tensor, b.call(aten.arange.default, source), rows)
        shown, masked = (b.constant(torch.tensor(number, dtype=b.dtype(query))) for number in (0.0, _MASKED))
        return b.call(aten.where.self, seen, shown, masked), None
    hidden = torch.ones(length, source, dtype=torch.bool).triu(1)
    return b.constant(torch.zeros(length, source, dtype=b.dtype(query)).masked_fill(hidden, _MASKED)), None


def _bias(b: Builder, mask: Node | None) -> tuple[Node | None, Node | None]:
    """Additive finite bias, and a factor that is 0 for rows that see nothing (None where no row can)."""
    if mask is None:
        return None, None
    if b.dtype(mask) != torch.bool:
        return _finite_bias(b, mask)
    known = b.constants.get(mask)
    if known is not None and bool(known.all()):
        return None, None
    shown, hidden = b.constant(torch.tensor(0.0)), b.constant(torch.tensor(_MASKED))
    bias = b.call(aten.where.self, mask, shown, hidden)
    if known is not None and bool(known.any(-1).all()):
        return bias, None
    return bias, _row_factor(b, mask)


def _finite_bias(b: Builder, mask: Node) -> tuple[Node | None, Node | None]:
    known = b.constants.get(mask)
    if known is not None and not bool(known.any()):
        return None, None
    bias = b.call(aten.clamp.default, mask, _MASKED, None)
    if known is not None and bool((known > -math.inf).any(-1).all()):
        return bias, None
    return bias, _row_factor(b, b.call(aten.ne.Scalar, mask, -math.inf))


def _row_factor(b: Builder, mask: Node) -> Node:
    """1.0 for rows of the bool mask with any True, else 0.0; shape (..., L, 1)."""
    seen = b.call(aten.any.dims, mask, [-1], True)
    return convert(b, seen, torch.float32)
