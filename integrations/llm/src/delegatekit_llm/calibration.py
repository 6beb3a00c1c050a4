"""Calibration of a decoder: a text as the calls of its methods, for schemes that fix the ranges of activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from delegatekit.errors.misuse import WrongArgumentError

from .fixed import DECODE, FORWARD, PREFILL, padded

#: Tokens that are drawn where no text is given, and those at the end of a text that go in one by one, at most.
_DRAWN: Final = 256
_SINGLE: Final = 32
#: What is added to hidden scores: a range that is fixed has to hold it beside the others, whose steps grow with it. So
#: far below the largest score, a weight is nothing to integers of 16 bits, up to a difference of 243 between scores.
HIDING: Final = -255.0


def drawn_tokens(context: int, vocabulary: int) -> list[int]:
    """Tokens of no text, the same each time: ranges of activations are then those of noise."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, vocabulary, (min(context, _DRAWN),), generator=generator).tolist()


def calls_of(tokens: Sequence[int], context: int, chunk: int, methods: Sequence[str]) -> Mapping[str, list[Any]]:
    """The arguments of each method's calls: the text in chunks, and its last tokens one by one.

    What is beyond the context is left out. Raises WrongArgumentError for less than two tokens.
    """
    given = torch.tensor([list(tokens[:context])], dtype=torch.int64)
    count = given.shape[1]
    if count < 2:
        raise WrongArgumentError(f"has {count} tokens", where="calibration", hint="a text like those to come")
    first = count - min(_SINGLE, count // 2)
    chunks = [(given[:, at : min(at + chunk, first)], torch.tensor([at])) for at in range(0, first, chunk)]
    single = [(given[:, at : at + 1], torch.tensor([at])) for at in range(first, count)]
    if list(methods) == [FORWARD]:
        return {FORWARD: chunks + single}
    return {PREFILL: [padded(*call, chunk) for call in chunks], DECODE: single}
