"""Caches of keys and values: buffers of fixed size that are exported with the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import torch.ao.quantization.fx._decomposed

from delegatekit.errors.misuse import WrongArgumentError
from delegatekit_toolkit.later import zeros

#: The largest integer of a cache of 8 bits; the smallest is the same, negated.
_LARGEST: Final = 127


def check_bits(bits: int | None) -> None:
    """Raise WrongArgumentError for bits of a cache's numbers that there are none of."""
    if bits not in (None, 8):
        raise WrongArgumentError(f"caches of {bits!r} bits are not made", where="cache", hint="8 bits")


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
    With 8 `bits` they are integers, which `key_scales` and `value_scales` multiply: one for each token and head.

    Raises WrongArgumentError for another number of bits.
    """

    keys: torch.Tensor
    values: torch.Tensor
    #: (heads, tokens), or (tokens, heads) with `fused`; None if keys and values are float numbers.
    key_scales: torch.Tensor | None
    value_scales: torch.Tensor | None

    def __init__(
        self, shape: CacheShape, context: int, chunk: int, *, fused: bool = False, bits: int | None = None
    ) -> None:
        super().__init__()
        check_bits(bits)
        self.window = shape.window
        self.tokens = shape.tokens(context, chunk)
        #: True if a place is used again for a later token.
        self.is_ring = self.tokens < context
        self.fused = fused
        places = (self.tokens, shape.heads) if fused else (shape.heads, self.tokens)
        for name, size in (("key", shape.key_size), ("value", shape.value_size)):
            self.register_buffer(f"{name}s", zeros((*places, size), shape.dtype if bits is None else torch.int8))
            self.register_buffer(f"{name}_scales", None if bits is None else zeros(places, shape.dtype))

    def write(self, positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put the keys and values of tokens, (1, heads, n, size), into their places; `positions` is (n,)."""
        places = torch.remainder(positions, self.tokens) if self.is_ring else positions
        axis = 0 if self.fused else 1
        written = ((self.keys, self.key_scales, keys[0]), (self.values, self.value_scales, values[0]))
        for cache, scales, given in written:
            new = given.transpose(0, 1) if self.fused else given
            if scales is None:
                cache.index_copy_(axis, places, new)
                continue
            integers, largest = rounded(new)
            cache.index_copy_(axis, places, integers)
            scales.index_copy_(axis, places, largest)

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
        for buffer in self.buffers():
            buffer.zero_()


def rounded(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers of 8 bits, (..., size), and the scale of each row, (...): the largest of its numbers."""
    scales = numbers.abs().amax(-1).clamp(min=torch.finfo(numbers.dtype).tiny)
    return (numbers / scales.unsqueeze(-1) * _LARGEST).round().to(torch.int8), scales


def numbers_of(integers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What scales multiply: integers of 8 bits as float numbers from -1 to 1, in the form that backends take."""
    more = {} if dtype == torch.float32 else {"out_dtype": dtype}
    found: torch.Tensor = torch.ops.quantized_decomposed.dequantize_per_tensor(
        integers, 1 / _LARGEST, 0, -128, 127, torch.int8, **more
    )
    return found
