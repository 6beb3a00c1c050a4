"""Embeddings of 8 and 4 bits: integers and scales in the file, numbers of a call's tokens at run time.

Only the runtime's own kernels are needed, and eager mode computes the same bits: rows are looked up as integers, and
multiplied by their scales.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from delegatekit.errors.misuse import WrongArgumentError
from delegatekit_api import UnsupportedError

from .checkpoints.layers import form_of
from .mapped import computing_dtype, stored

#: Bits of an integer -> the largest of its values; the smallest is the same, negated.
LARGEST: Final = {8: 127, 4: 7}
#: Numbers of a row that share a scale, if they are of 4 bits and the row can be divided so.
GROUP: Final = 32
_NIBBLE: Final = 16
#: Rows that are rounded at a time: float numbers of all of them would take much memory.
_ROWS: Final = 1024


def check_bits(bits: int | None) -> None:
    """Raise WrongArgumentError for bits of an embedding's numbers that there are none of."""
    if bits is not None and bits not in LARGEST:
        raise WrongArgumentError(f"embeddings of {bits!r} bits are not made", where="embedding", hint="8 or 4 bits")


class QuantizedEmbedding(torch.nn.Module):
    """An embedding whose rows are integers of 8 bits, with a scale each, or of 4, with one for each 32 numbers.

    Without `bits` they are the integers and scales that torchao has rounded it to (`has_integers`).

    Raises UnsupportedError for an embedding of another kind, and WrongArgumentError for another number of bits.
    """

    integers: torch.Tensor
    scales: torch.Tensor

    def __init__(self, embedding: torch.nn.Module, bits: int | None = None) -> None:
        super().__init__()
        if bits is None:
            self._take(embedding)
            return
        check_bits(bits)
        if not isinstance(embedding, torch.nn.Embedding) or embedding.max_norm is not None:
            raise UnsupportedError("is not a plain lookup of rows", where=type(embedding).__name__)
        #: Factor of the rows, as Gemma's embeddings have one.
        self.factor: Any = getattr(embedding, "embed_scale", None)
        self.bits = bits
        weight = stored(embedding)
        self.dtype = computing_dtype(embedding)
        self.size = weight.shape[1]
        if bits == 4 and self.size % 2:
            raise UnsupportedError(f"has {self.size} numbers in a row, and 4 bits come in pairs", where="embedding")
        group = GROUP if bits == 4 and self.size % GROUP == 0 else self.size
        self.register_buffer("scales", torch.empty(len(weight), self.size // group, dtype=self.dtype))
        self.register_buffer("integers", torch.empty(len(weight), self.size * bits // 8, dtype=torch.int8))
        for start in range(0, len(weight), _ROWS):
            rows = slice(start, start + _ROWS)
            grouped = weight[rows].to(self.dtype).float().view(-1, self.size // group, group)
            scales = (grouped.abs().amax(-1, keepdim=True) / LARGEST[bits]).clamp(min=torch.finfo(torch.float32).tiny)
            scales = scales.to(self.dtype)
            integers = (grouped / scales.float()).round().clamp(-LARGEST[bits], LARGEST[bits]).flatten(1).to(torch.int8)
            self.scales[rows] = scales.squeeze(-1)
            self.integers[rows] = integers if bits == 8 else _packed(integers)

    def _take(self, embedding: torch.nn.Module) -> None:
        """Keep integers and scales as they are."""
        weight: Any = embedding.weight
        form = form_of(weight)
        assert form is not None
        self.factor = getattr(embedding, "embed_scale", None)
        self.bits, self.dtype, self.size = form.bits, weight.dtype, weight.shape[1]
        self.register_buffer("scales", weight.scale.view(len(weight), -1))
        self.register_buffer("integers", weight.qdata if form.bits == max(LARGEST) else _packed(weight.qdata))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The rows of tokens: (..., size)."""
        rows = torch.nn.functional.embedding(tokens, self.integers)
        scales = torch.nn.functional.embedding(tokens, self.scales)
        if self.bits == 4:
            low, high = rows.remainder(_NIBBLE), rows.div(_NIBBLE, rounding_mode="floor")
            rows = torch.cat((low - _NIBBLE // 2, high), -1)
        groups = self.scales.shape[1]
        numbers = rows.to(self.dtype).view(*tokens.shape, groups, self.size // groups) * scales.unsqueeze(-1)
        found = numbers.view(*tokens.shape, self.size)
        if self.factor is None:
            return found
        return found * (self.factor if isinstance(self.factor, float) else self.factor.to(self.dtype))


def has_integers(embedding: Any) -> bool:
    """True for an embedding that torchao has rounded to integers of 8 or 4 bits, around 0."""
    if not isinstance(embedding, torch.nn.Embedding) or embedding.max_norm is not None:
        return False
    form = form_of(embedding.weight)
    pairs = embedding.weight.shape[1] % 2 == 0
    return form is not None and form.bits in LARGEST and not form.zero_points and (form.bits != min(LARGEST) or pairs)


def _packed(integers: torch.Tensor) -> torch.Tensor:
    """Integers of 4 bits, two to a byte: a row's first half in the low bits, plus 8, the second in the high ones."""
    low, high = integers.chunk(2, -1)
    return (high * _NIBBLE + low + _NIBBLE // 2).to(torch.int8)


@contextmanager
def embedding_in(model: torch.nn.Module, embedding: torch.nn.Module | None) -> Iterator[None]:
    """The model looks its tokens up in this embedding meanwhile; None leaves its own."""
    if embedding is None:
        yield
        return
    owner: Any = model
    own = owner.get_input_embeddings()
    weight = own._parameters["weight"]
    # An encoder and a decoder have an embedding each, with one weight.
    places = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if child is own or (isinstance(child, torch.nn.Embedding) and child._parameters["weight"] is weight)
    ]
    try:
        for parent, name, _ in places:
            parent._modules[name] = embedding
        yield
    finally:
        for parent, name, child in places:
            parent._modules[name] = child
