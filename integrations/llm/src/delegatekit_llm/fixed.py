"""A decoder as two methods whose sizes never change: a chunk of a prompt in one call, or one token.

Both are exported from modules that have the decoder under the same name: so its caches are one in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from delegatekit.errors.misuse import WrongArgumentError

if TYPE_CHECKING:
    from .decoder import Decoder

FORWARD: Final = "forward"
PREFILL: Final = "prefill"
DECODE: Final = "decode"
#: Tokens of a prefill, where none are given: all of them are computed in each call, however few are given.
CHUNK: Final = 128


class Prefill(torch.nn.Module):
    """`prefill(tokens, start_pos, count)`: tokens are int64 (1, chunk), of which the first `count`, int64 (1,), count.

    In place of the others the last one that counts is computed again, at its own position: what is written twice is the
    same, so nothing else is, neither beyond the context nor over older tokens of a window. Returns the logits of the
    last token that counts, or of all, (1, chunk, vocabulary), in which it is repeated.
    """

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: torch.Tensor, start_pos: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """The logits: see the class."""
        taken = torch.minimum(torch.arange(self.decoder.chunk), count - 1)
        return self.decoder.at(tokens.index_select(1, taken), start_pos + taken)


class Decode(torch.nn.Module):
    """`decode(tokens, start_pos)`: the decoder with one token, int64 (1, 1)."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: torch.Tensor, start_pos: torch.Tensor) -> torch.Tensor:
        """The logits of the token, (1, 1, vocabulary)."""
        found: torch.Tensor = self.decoder(tokens, start_pos)
        return found


def joined(
    prefill: Callable[..., Any], decode: Callable[..., Any], chunk: int
) -> Callable[[torch.Tensor, torch.Tensor], Any]:
    """The two methods as one that takes 1 to `chunk` tokens, (1, n), and start_pos, as `Decoder` does."""

    def forward(tokens: torch.Tensor, start_pos: torch.Tensor) -> Any:
        count = tokens.shape[1]
        if count == 1:
            return decode(tokens, start_pos)
        return prefill(*padded(tokens, start_pos, chunk))

    return forward


def padded(tokens: torch.Tensor, start_pos: torch.Tensor, chunk: int) -> tuple[torch.Tensor, ...]:
    """The arguments of a prefill of these tokens, (1, n)."""
    count = tokens.shape[1]
    return torch.nn.functional.pad(tokens, (0, chunk - count)), start_pos, torch.tensor([count])


def is_fixed(methods: Sequence[str] | None, chunk: int | None, *, fused: bool, wanted: bool) -> bool:
    """True for prefill and decode, False for forward: as asked for, or else as `wanted`, unless a call has one token.

    Raises WrongArgumentError for other methods, and for what does not go with a prefill.
    """
    if methods is None:
        found = wanted and chunk != 1
    elif set(methods) not in ({FORWARD}, {PREFILL, DECODE}):
        raise WrongArgumentError(
            f"cannot be {', '.join(methods)}", where="methods", hint=f"{FORWARD}, or {PREFILL} and {DECODE}"
        )
    else:
        found = PREFILL in methods
    if found and chunk == 1:
        raise WrongArgumentError("chunk is 1", where=PREFILL, hint=f"that is the method {FORWARD}: leave methods out")
    if found and fused:
        raise WrongArgumentError(
            "fused attention sees all tokens of a call, also those that do not count",
            where=PREFILL,
            hint=f"leave fused (--fused) out, or take the method {FORWARD} (--method {FORWARD})",
        )
    return found
