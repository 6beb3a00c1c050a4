"""Scaled dot-product attention decomposed into operators of accelerators: matmul, add, softmax, matmul.

PyTorch's own decomposition guards every layer against fully masked rows with comparisons that no accelerator supports.
Here a mask becomes a finite additive bias once per program (equal nodes merge), and the guard, where a mask can hide
a whole row, is one multiplication.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.fx import Node

from ..arguments import read_argument
from ..builder import EdgeBuilder, Value
from ..draft import Draft
from ..sizes import Shape, is_static
from .table import Family

aten = torch.ops.aten

ATTENTION = Family("attention")

#: Added to a masked score: adding any sane score changes nothing, and exp() of it is exactly 0 beside an unmasked one.
MASKED = -1e30


class Writer(Protocol):
    """The graph writer of decomposed attention: the edge graph's builder, or another graph's."""

    @property
    def constants(self) -> Mapping[Node, torch.Tensor]:
        """The constants among the nodes."""

    def shape(self, value: Any) -> Shape:
        """Sizes of a node's value."""

    def dtype(self, value: Any) -> torch.dtype:
        """Dtype of a node's value."""

    def constant(self, tensor: torch.Tensor) -> Node:
        """A node for a known tensor."""

    def call(self, target: Any, *args: Any, value: Any = None, **kwargs: Any) -> Any:
        """Append a call. `value` is the fake result, if known."""


@ATTENTION.rule(aten.scaled_dot_product_attention.default)
def _attention(b: EdgeBuilder, call: Draft) -> Value:
    given = Attention.of(call)
    if given.dropout:
        b.refuse("attention with dropout is random", hint="call model.eval() before torch.export")
    if not b.dtype(given.query).is_floating_point or len(b.shape(given.query)) < 2:
        return NotImplemented
    return in_pieces(b, given, call.value)


@dataclass(frozen=True)
class Attention:
    """The arguments of scaled dot-product attention."""

    query: Node
    key: Node
    values: Node
    mask: Node | None
    dropout: float
    causal: bool
    #: None: derived from the size of the queries.
    scale: float | None
    #: Queries have more heads than keys and values.
    grouped: bool

    @classmethod
    def of(cls, call: Node | Draft) -> Attention:
        """The arguments of a call of `aten.scaled_dot_product_attention`."""
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
        return cls(*(read_argument(call, name) for name in names))


def in_pieces(b: Writer, given: Attention, value: Any, masked: Callable[[Node], Node] | None = None) -> Value:
    """Attention as PyTorch's operators; `value` is the fake result, or None.

    `masked` masks the scores, if not by a bias.
    """
    query, key, values, mask = given.query, given.key, given.values, given.mask
    dtype = b.dtype(query)
    # Scores of narrow dtypes are computed, summed and weighted in float32, as in PyTorch's kernels.
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    query, key, values = (_converted(b, item, wide) for item in (query, key, values))
    if mask is not None and b.dtype(mask) != torch.bool:
        mask = _converted(b, mask, wide)
    if given.grouped:
        key, values = (_repeat_heads(b, tensor, b.shape(query)[-3]) for tensor in (key, values))
    scale = 1.0 / math.sqrt(b.shape(query)[-1]) if given.scale is None else given.scale
    bias, visible = _causal(b, query, key) if given.causal else _bias(b, mask)
    query = b.call(aten.mul.Tensor, query, scale)
    scores = b.call(aten.matmul.default, query, b.call(aten.transpose.int, key, -1, -2))
    if bias is not None:
        scores = b.call(aten.add.Tensor, scores, bias)
    if masked is not None:
        scores = masked(scores)
    weights = b.call(aten.softmax.int, scores, -1)
    if given.dropout:
        weights = b.call(aten.dropout.default, weights, given.dropout, True)
    known = value if wide == dtype else None
    result = b.call(aten.matmul.default, weights, values, value=known)
    if visible is not None:
        result = b.call(aten.mul.Tensor, result, _converted(b, visible, wide), value=known)
    return _converted(b, result, dtype)


def _converted(b: Writer, x: Node, dtype: torch.dtype) -> Node:
    return x if b.dtype(x) == dtype else b.call(aten._to_copy.default, x, dtype=dtype)


def _repeat_heads(b: Writer, x: Node, heads: int) -> Node:
    """(..., h, L, E) -> (..., heads, L, E), each head repeated in place (grouped-query attention)."""
    shape = b.shape(x)
    count = heads // shape[-3]
    if count == 1:
        return x
    spread = b.call(aten.unsqueeze.default, x, len(shape) - 2)
    spread = b.call(aten.expand.default, spread, [*shape[:-2], count, *shape[-2:]])
    return b.call(aten.reshape.default, spread, [*shape[:-3], heads, *shape[-2:]])  # type: ignore[no-any-return]


def _causal(b: Writer, query: Node, key: Node) -> tuple[Node, None]:
    """Bias (L, S) of the causal mask: aligned at the top left, so that no row is fully masked."""
    length, source = b.shape(query)[-2], b.shape(key)[-2]
    if not is_static((length, source)):
        rows = b.call(aten.unsqueeze.default, b.call(aten.arange.default, length), 1)
        seen = b.call(aten.le.Tensor, b.call(aten.arange.default, source), rows)
        shown, masked = (b.constant(torch.tensor(number, dtype=b.dtype(query))) for number in (0.0, MASKED))
        return b.call(aten.where.self, seen, shown, masked), None
    hidden = torch.ones(length, source, dtype=torch.bool).triu(1)
    return b.constant(torch.zeros(length, source, dtype=b.dtype(query)).masked_fill(hidden, MASKED)), None


def _bias(b: Writer, mask: Node | None) -> tuple[Node | None, Node | None]:
    """Additive finite bias, and a factor that is 0 for fully masked rows (None where there can be none)."""
    if mask is None:
        return None, None
    if b.dtype(mask) != torch.bool:
        return _finite_bias(b, mask)
    known = b.constants.get(mask)
    if known is not None and bool(known.all()):
        return None, None
    shown, hidden = b.constant(torch.tensor(0.0)), b.constant(torch.tensor(MASKED))
    bias = b.call(aten.where.self, mask, shown, hidden)
    if known is not None and bool(known.any(-1).all()):
        return bias, None
    return bias, _row_factor(b, mask)


def _finite_bias(b: Writer, mask: Node) -> tuple[Node | None, Node | None]:
    known = b.constants.get(mask)
    if known is not None and not bool(known.any()):
        return None, None
    bias = b.call(aten.clamp.default, mask, MASKED, None)
    if known is not None and bool((known > -math.inf).any(-1).all()):
        return bias, None
    return bias, _row_factor(b, b.call(aten.ne.Scalar, mask, -math.inf))


def _row_factor(b: Writer, mask: Node) -> Node:
    """1.0 for rows of the bool mask with any True, else 0.0; shape (..., L, 1)."""
    seen = b.call(aten.any.dims, mask, [-1], True)
    return _converted(b, seen, torch.float32)
