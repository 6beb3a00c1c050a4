"""Attention over caches of fixed size, called by the model's own layers through transformers' attention interface.

A model whose configuration names `IMPLEMENTATION` makes no masks and calls `attend`. Its layers give the keys and
values of new tokens to what they take for transformers' cache: a `Step`, which has the caches of all layers and the
tokens' positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

import torch

from delegatekit.quantization.torchao import quiet
from delegatekit_api import UnsupportedError
from delegatekit_llama import attention

from .caches import CacheShape, KeyValueCache

with quiet():  # transformers imports torchao
    from transformers import AttentionInterface

#: The name of this attention in a model's configuration.
IMPLEMENTATION: Final = "delegatekit"
#: Arguments of the interface that change what attention computes, and that it does not have here.
_UNSUPPORTED: Final = ("s_aux", "position_bias", "head_mask", "indices")
_step: ContextVar[Step | Probe] = ContextVar("step")


class _Cache:
    """The answers to what transformers asks a cache, besides `update`, which its layers call."""

    #: For the size of masks, which are not made.
    is_sliding: Sequence[bool] = ()
    is_compileable = False

    def get_seq_length(self, *_: Any) -> int:
        """Nothing: positions are given to the model."""
        return 0


class Step(_Cache):
    """One call of a decoder: the caches that its layers write, and the positions of its tokens.

    Layers take it for their cache.
    """

    def __init__(self, caches: Sequence[KeyValueCache], positions: torch.Tensor) -> None:
        self.caches = caches
        self.positions = positions
        self._masks: dict[tuple[int, int | None, torch.dtype], torch.Tensor] = {}

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values of new tokens, (1, heads, n, size); returns the cache: (heads, tokens, size)."""
        cache = self.caches[layer]
        cache.write(self.positions, keys, values)
        return cache.keys, cache.values

    def mask(self, cache: KeyValueCache, dtype: torch.dtype) -> torch.Tensor:
        """The addend to scores (n, tokens) that hides what queries must not see; one for all layers of a kind."""
        kind = (cache.tokens, cache.window, dtype)
        if kind not in self._masks:
            hidden = torch.full((), torch.finfo(dtype).min, dtype=dtype)
            self._masks[kind] = torch.where(cache.visible(self.positions), torch.zeros((), dtype=dtype), hidden)
        return self._masks[kind]


class Probe(_Cache):
    """A stand-in for the caches, which finds what a model's layers would keep of one token."""

    def __init__(self) -> None:
        #: Layer -> what it keeps.
        self.shapes: dict[int, CacheShape] = {}

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Note the sizes; returns what is given."""
        self.shapes[layer] = CacheShape(keys.shape[1], keys.shape[3], values.shape[3], keys.dtype)
        return keys, values


@contextmanager
def within(step: Step | Probe) -> Iterator[None]:
    """Layers that are called meanwhile attend over this step's caches."""
    token = _step.set(step)
    try:
        yield
    finally:
        _step.reset(token)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of new tokens over all that a layer's cache has, after `Step.update` has written theirs.

    `query` is (1, heads, n, size); `key` and `value` are (groups, tokens, size), of which each serves `heads /
    groups` heads. Returns (1, n, heads, size). Raises UnsupportedError for what an attention does otherwise.
    """
    layer: Any = module
    _check(layer, attention_mask, more)
    step, index = _step.get(), int(layer.layer_idx)
    heads, new, size = query.shape[1:]
    if isinstance(step, Probe):
        known = step.shapes[index]
        step.shapes[index] = replace(known, window=sliding_window, softcap=softcap)
        return query.new_empty(1, new, heads, known.value_size), None
    cache = step.caches[index]
    if cache.fused:
        return attention(query.transpose(1, 2), key, value, step.positions[:1], scaling), None
    groups = key.shape[0]
    shared = heads // groups
    # The queries of a group's heads follow one another, so that its keys are read once: they are never repeated.
    # Clones instead of `reshape`: whether that copies would depend on the number of new tokens.
    scale = size**-0.5 if scaling is None else scaling
    asked = query.clone(memory_format=torch.contiguous_format).view(groups, shared * new, size) * scale
    scores = torch.bmm(asked, key.transpose(1, 2))
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    weights = torch.softmax(scores + step.mask(cache, scores.dtype).repeat(shared, 1), dim=-1)
    found = torch.bmm(weights, value)
    by_token = found.view(groups, shared, new, value.shape[2]).permute(2, 0, 1, 3)
    return by_token.clone(memory_format=torch.contiguous_format).view(1, new, heads, value.shape[2]), None


def _check(layer: Any, mask: torch.Tensor | None, more: Mapping[str, Any]) -> None:
    asked = [name for name in _UNSUPPORTED if more.get(name) is not None]
    if not getattr(layer, "is_causal", True) or more.get("is_causal") is False:
        asked.append("queries that see later tokens")
    if mask is not None:
        asked.append("a mask of its own")
    if asked:
        raise UnsupportedError(
            f"its attention has {', '.join(asked)}",
            where=type(layer).__name__,
            hint="attention over a cache is implemented with causal masks, windows, soft caps and groups of heads",
        )


AttentionInterface.register(IMPLEMENTATION, attend)
