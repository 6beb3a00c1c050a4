"""Scaled dot product attention."""

from __future__ import annotations

import math
from typing import Any

from ..recipe import Recipe, Values
from .registry import operator
from .sketch import FLOATS, Sketch
from .summands import summands


@operator("aten.scaled_dot_product_attention.default", dtypes=FLOATS)
def _attention(sketch: Sketch, name: str) -> Recipe:
    rank = sketch.choice((4, 4, 3, 2, 5))
    queries, keys = sketch.integer(1, 6), sketch.integer(1, 6)
    width = sketch.integer(1, 6)
    value_width = width if not sketch.rarely(4) else sketch.integer(1, 6)
    batch = [sketch.integer(1, 3) for _ in range(rank - 2)]
    kv_batch = list(batch)
    gqa = rank >= 4 and sketch.rarely(4)
    if gqa:  # several query heads for each head of keys and values
        batch[-1] *= sketch.integer(1, 3)
    elif batch and sketch.rarely(6):
        kv_batch[sketch.integer(0, len(batch) - 1)] = 1
    results = (*batch, queries, value_width)
    q = sketch.tensor((*batch, queries, width))
    k = sketch.tensor((*kv_batch, keys, width))
    v = sketch.tensor((*kv_batch, keys, value_width), values=summands(sketch, results))
    kwargs: dict[str, Any] = {}
    kind = sketch.choice(("none", "bool", "float", "causal"))
    if kind == "causal":
        kwargs["is_causal"] = True
    elif kind != "none":
        kwargs["attn_mask"] = _mask(sketch, kind, batch, queries, keys)
    if sketch.rarely(3):
        kwargs["scale"] = sketch.choice((0.5, 1.0, 0.125))
    if gqa:
        kwargs["enable_gqa"] = True
    sketch.call(name, q, k, v, **kwargs)
    return sketch.recipe(reduction_length=width + keys, depth=4)


def _mask(sketch: Sketch, kind: str, batch: list[int], queries: int, keys: int) -> Any:
    """A mask that broadcasts to the scores. A query that sees no key gets zeros, in eager and hence everywhere."""
    shape = [*(size if sketch.flag() else 1 for size in batch), queries, keys]
    if sketch.flag():
        shape = shape[len(batch) :]
    elif sketch.rarely(4):
        shape[-2] = 1
    count = math.prod(shape)
    if kind == "bool":
        values: Values = ("integers", 0, 1)
        return sketch.tensor(shape, "bool", values=values, constant=sketch.flag())
    if count <= 40 and sketch.flag():
        numbers = tuple(sketch.choice((0.0, -math.inf, -1.5)) for _ in range(count))
        return sketch.tensor(shape, values=("literal", numbers), layouts=False, constant=sketch.flag())
    return sketch.tensor(shape, constant=sketch.flag())
