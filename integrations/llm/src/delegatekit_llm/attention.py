"""Attention over caches of fixed size, called by the model's own layers through transformers' attention interface.

A model whose configuration names `IMPLEMENTATION` makes no masks and calls `attend`. Its layers give the keys and
values of new tokens to what they take for transformers' cache: a `Step`, which has the caches of all layers and the
tokens' positions. In models of an encoder and a decoder, layers that see all tokens call it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

import torch

from delegatekit.quantization.torchao import quiet
from delegatekit_api import UnsupportedError
from delegatekit_llama import attention

from .caches import CacheShape, KeyValueCache, numbers_of

with quiet():  # transformers imports torchao
    from transformers import AttentionInterface

#: The name of this attention in a model's configuration.
IMPLEMENTATION: Final = "delegatekit"
#: Arguments of the interface that change what attention computes, and that it does not have here.
_UNSUPPORTED: Final = ("s_aux", "head_mask", "indices")
_step: ContextVar[Step | Probe | Whole] = ContextVar("step")


class _Cache:
    """The answers to what transformers asks a cache, besides `update`, which its layers call."""

    #: For the size of masks, which are not made.
    is_sliding: Sequence[bool] = ()
    is_linear: Sequence[bool] = ()
    is_dummy: Sequence[bool] = ()
    is_compileable = False
    #: True if the model has an encoder, whose states its layers attend over, too.
    encoded = False

    def get_seq_length(self, *_: Any) -> int | torch.Tensor:
        """Nothing: positions are given to the model."""
        return 0


class Step(_Cache):
    """One call of a decoder: the caches that its layers write, and the positions of its tokens.

    Layers take it for their cache.
    """

    def __init__(
        self,
        caches: Sequence[KeyValueCache],
        positions: torch.Tensor,
        *,
        encoded: bool = False,
        hiding: float | None = None,
    ) -> None:
        self.hiding = hiding
        self.caches = caches
        self.positions = positions
        self.encoded = encoded
        self._masks: dict[tuple[int, int | None, torch.dtype], torch.Tensor] = {}
        #: A tensor's hash is its identity.
        self._biased: dict[torch.Tensor, torch.Tensor] = {}

    def get_seq_length(self, *_: Any) -> int | torch.Tensor:
        """The tokens before those of this call, (1,): decoders behind an encoder take no positions."""
        return self.positions[:1] if self.encoded else 0

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values of new tokens, (1, heads, n, size); returns the cache's: (heads, tokens, size)."""
        cache = self.caches[layer]
        cache.write(self.positions, keys, values)
        return cache.keys, cache.values

    def mask(self, cache: KeyValueCache, dtype: torch.dtype) -> torch.Tensor:
        """The addend to scores (n, tokens) that hides what queries must not see; one for all layers of a kind."""
        kind = (cache.tokens, cache.window, dtype)
        if kind not in self._masks:
            least = torch.finfo(dtype).min
            hidden = torch.full((), least if self.hiding is None else max(self.hiding, least), dtype=dtype)
            self._masks[kind] = torch.where(cache.visible(self.positions), torch.zeros((), dtype=dtype), hidden)
        return self._masks[kind]

    def biased_mask(self, cache: KeyValueCache, bias: torch.Tensor) -> torch.Tensor:
        """The mask, with a bias (heads, n, tokens) added: one for all layers that share it."""
        if bias not in self._biased:
            self._biased[bias] = bias[0] + self.mask(cache, bias.dtype)
        return self._biased[bias]


class Probe(_Cache):
    """A stand-in for the caches, which finds what a model's layers would keep of one token."""

    def __init__(self, *, encoded: bool = False) -> None:
        #: Layer -> what it keeps.
        self.shapes: dict[int, CacheShape] = {}
        self.encoded = encoded

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Note the sizes; returns what is given."""
        self.shapes[layer] = CacheShape(keys.shape[1], keys.shape[3], values.shape[3], keys.dtype)
        return keys, values


class Whole(_Cache):
    """One call whose queries see the tokens of this call, and no others: an encoder's."""

    encoded = True

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What is given: nothing is kept."""
        return keys, values


@contextmanager
def within(step: Step | Probe | Whole) -> Iterator[None]:
    """Layers that are called meanwhile attend over this step's caches."""
    token = _step.set(step)
    try:
        yield
    finally:
        _step.reset(token)


@contextmanager
def implementation(model: torch.nn.Module) -> Iterator[None]:
    """The model's layers call our attention meanwhile."""
    found: dict[int, Any] = {id(item.config): item.config for item in model.modules() if hasattr(item, "config")}
    before = [(config, config._attn_implementation) for config in found.values()]
    try:
        for config, _ in before:
            config._attn_implementation = IMPLEMENTATION
        yield
    finally:
        for config, name in before:
            config._attn_implementation = name


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    position_bias: torch.Tensor | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of new tokens over all that a layer's cache has, after `Step.update` has written theirs.

    `query` is (1, heads, n, size); `key` and `value` are (groups, tokens, size), of which each serves `heads /
    groups` heads; `position_bias`, (1, heads, n, tokens), is added to the scores. Layers that see all tokens, which a
    model with an encoder has, attend over what they give, also as (1, groups, tokens, size). Returns (1, n, heads,
    size). Raises UnsupportedError for what an attention does otherwise.
    """
    layer: Any = module
    step, index = _step.get(), layer.layer_idx
    causal = getattr(layer, "is_causal", True) and more.get("is_causal") is not False
    asked = [name for name in _UNSUPPORTED if more.get(name) is not None]
    if not causal and not step.encoded:
        asked.append("queries that see later tokens")
    if position_bias is not None and sliding_window is not None:
        asked.append("a window and a bias of positions")
    _check(layer, attention_mask, asked)
    if isinstance(step, Whole) or not causal:
        # Over an encoder's states, which are (groups, tokens, size), positions have no bias: T5 gives zeros.
        over_states = key.dim() == 3 and not getattr(layer, "has_relative_attention_bias", True)
        addend = None if position_bias is None or over_states else position_bias[0]
        keys, values = (item if item.dim() == 3 else item[0] for item in (key, value))
        return _attended(query, keys, values, addend, scaling, softcap), None
    if isinstance(step, Probe):
        known = step.shapes[index]
        biased = position_bias is not None
        step.shapes[index] = replace(known, window=sliding_window, softcap=softcap, biased=biased)
        return query.new_empty(1, query.shape[2], query.shape[1], known.value_size), None
    cache = step.caches[index]
    if cache.fused:
        return attention(query.transpose(1, 2), key, value, step.positions[:1], scaling), None
    if position_bias is None:
        addend = step.mask(cache, query.dtype).repeat(query.shape[1] // key.shape[0], 1)
    else:
        addend = step.biased_mask(cache, position_bias)
    return _attended(query, key, value, addend, scaling, softcap, cache.key_scales, cache.value_scales), None


def _attended(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    addend: torch.Tensor | None,
    scaling: float | None,
    softcap: float | None,
    key_scales: torch.Tensor | None = None,
    value_scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention with an addend to the scores: of all groups of heads, or of each head, if there are as many groups.

    Keys and values that are integers have scales, (groups, tokens). They multiply the scores and the weights, of which
    there are fewer than numbers of a token's head.
    """
    heads, new, size = query.shape[1:]
    groups = key.shape[0]
    shared = heads // groups
    # The queries of a group's heads follow one another, so that its keys are read once: they are never repeated.
    # Clones instead of `reshape`: whether that copies would depend on the number of new tokens.
    scale = size**-0.5 if scaling is None else scaling
    asked = query.clone(memory_format=torch.contiguous_format).view(groups, shared * new, size)
    if key_scales is not None:
        key = numbers_of(key, query.dtype)
    scores = torch.bmm(asked if scale == 1.0 else asked * scale, key.transpose(1, 2))
    if key_scales is not None:
        scores = scores * key_scales.unsqueeze(1)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    weights = torch.softmax(scores if addend is None else scores + addend, dim=-1)
    if value_scales is not None:
        weights, value = weights * value_scales.unsqueeze(1), numbers_of(value, query.dtype)
    found = torch.bmm(weights, value)
    by_token = found.view(groups, shared, new, value.shape[2]).permute(2, 0, 1, 3)
    return by_token.clone(memory_format=torch.contiguous_format).view(1, new, heads, value.shape[2])


def _check(layer: Any, mask: torch.Tensor | None, asked: list[str]) -> None:
    if mask is not None:
        asked.append("a mask of its own")
    if asked:
        raise UnsupportedError(
            f"its attention has {', '.join(asked)}",
            where=type(layer).__name__,
            hint="attention over a cache is implemented with causal masks, windows, soft caps and groups of heads",
        )


AttentionInterface.register(IMPLEMENTATION, attend)
