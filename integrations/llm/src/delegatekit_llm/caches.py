"""Caches of keys and values: buffers of fixed size that are exported with the model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from delegatekit_toolkit.later import zeros


@dataclass(frozen=True)
class CacheShape:
    """The keys and values of one attention layer, for one token: their heads, and the sizes of each."""

    heads: int
    key_size: int
    value_size: int
    dtype: torch.dtype
    #: Tokens that a query sees, itself included; None for all before it.
    window: int | None = None
    #: The bound of the scores' soft cap, if they have one.
    softcap: float | None = None
    #: True if a bias of positions is added to the scores.
    biased: bool = False

    def is_fusible(self, context: int) -> bool:
        """True if the runtime's fused operator computes this attention."""
        windowed = self.window is not None and self.window < context
        plain = not windowed and not self.biased and self.softcap is None
        return plain and self.key_size == self.value_size and self.dtype == torch.float32

    def tokens(self, context: int, chunk: int) -> int:
        """The tokens that the cache keeps, if `chunk` tokens at most are written before they are read.

        Of a window, the first query of a chunk still sees `window - 1` tokens before it.
        """
        return context if self.window is None else min(context, self.window - 1 + chunk)


class KeyValueCache(torch.nn.Module):
    """The keys and values of one attention layer, (heads, tokens, size) each, as products of matrices read them.

    With `fused` they are (tokens, heads, size), as the runtime's fused operator reads them.
    Token p is in place p, or, where there are fewer places than tokens of context, in place p modulo their number.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, shape: CacheShape, context: int, chunk: int, *, fused: bool = False) -> None:
        super().__init__()
        self.window = shape.window
        self.tokens = shape.tokens(context, chunk)
        #: True if a place is used again for a later token.
        self.is_ring = self.tokens < context
        self.fused = fused
        places = (self.tokens, shape.heads) if fused else (shape.heads, self.tokens)
        for name, size in (("keys", shape.key_size), ("values", shape.value_size)):
            self.register_buffer(name, zeros((*places, size), shape.dtype))

    def write(self, positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put the keys and values of tokens, (1, heads, n, size), into their places; `positions` is (n,)."""
        places = torch.remainder(positions, self.tokens) if self.is_ring else positions
        for cache, new in ((self.keys, keys[0]), (self.values, values[0])):
            if self.fused:
                cache.index_copy_(0, places, new.transpose(0, 1))
            else:
                cache.index_copy_(1, places, new)

    def visible(self, positions: torch.Tensor) -> torch.Tensor:
        """The places that queries at `positions`, the last that were written, may see: bool (n, tokens)."""
        places = torch.arange(self.tokens)
        held = places
        if self.is_ring:
            last = positions[-1:]
            held = last - torch.remainder(last - places, self.tokens)
        queries = positions[:, None]
        seen = held <= queries
        if self.is_ring:  # places that nothing was written to hold tokens before the first
            seen = seen & (held >= 0)
        if self.window is not None:
            seen = seen & (held > queries - self.window)
        return seen

    def reset(self) -> None:
        """Forget all tokens."""
        self.keys.zero_()
        self.values.zero_()
