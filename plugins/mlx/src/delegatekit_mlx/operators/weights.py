"""Weights that stay integers.

MLX has weights of 8 and 4 bits in groups of a row, of which each has a scale and a bias: integers q stand for
scale q + bias.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch

from delegatekit_api import Operand
from delegatekit_api.schemes import Quantization

from ..blob import schema
from ..blob.types import NUMBERS
from ..ir.builder import GraphBuilder, Value
from .common import taken

#: The groups that MLX has, the largest first.
_GROUPS: Final = (128, 64, 32)


@dataclass(frozen=True)
class Packed:
    """A weight in MLX's form: words of integers (rows, columns * bits / 32), scales and biases (rows, groups)."""

    words: Value
    scales: Value
    biases: Value
    group: int
    bits: int


def packed(b: GraphBuilder, operand: Operand, dtype: torch.dtype) -> Packed | None:
    """A known weight in MLX's form, with scales of a type; None for what that form does not have."""
    integers, own = operand.integers, operand.quantization
    known = None if integers is None else integers.constant
    if own is None or known is None or known.dim() != 2 or known.dtype is not torch.int8:
        return None
    if own.axis not in (None, 0) and own.group is None:
        return None
    columns = known.shape[1]
    given = columns if own.group is None else own.group
    group = next((size for size in _GROUPS if given % size == 0), None)
    if group is None:
        return None
    bits = 4 if own.minimum >= -8 and own.maximum <= 7 else 8
    settings = (bits, group, dtype)
    words = b.once(known, lambda: _words(known, bits), "words", bits)
    scales = b.once(known, lambda: _scales(known, own, group).to(dtype), "scales", *settings)
    biases = b.once(known, lambda: _biases(known, own, group, bits).to(dtype), "biases", *settings)
    return Packed(words, scales, biases, group, bits)


def _words(known: torch.Tensor, bits: int) -> torch.Tensor:
    """Integers, counted from the least, in words of 32 bits, the first in the lowest bits."""
    shifted = (known.to(torch.int16) + (1 << (bits - 1))).to(torch.uint8)
    if bits == 4:
        shifted = shifted[:, ::2] | (shifted[:, 1::2] << 4)
    return shifted.contiguous().view(torch.uint32)


def _spread(parameter: float | torch.Tensor, rows: int, groups: int) -> torch.Tensor:
    """A parameter for each group of each row, in float32."""
    found = torch.as_tensor(parameter).detach().float()
    found = found.reshape(rows, -1) if found.numel() > 1 else found.reshape(1, 1).expand(rows, 1)
    return found.repeat_interleave(groups // found.shape[1], 1)


def _scales(known: torch.Tensor, own: Quantization, group: int) -> torch.Tensor:
    return _spread(own.scale, known.shape[0], known.shape[1] // group)


def _biases(known: torch.Tensor, own: Quantization, group: int, bits: int) -> torch.Tensor:
    zero = _spread(own.zero_point, known.shape[0], known.shape[1] // group)
    return -_scales(known, own, group) * (zero + (1 << (bits - 1)))


def quantized_product(b: GraphBuilder, x: Value, weight: Operand) -> Value | None:
    """A product with the transposed of a known weight that stays integers; None if it cannot.

    Halves are multiplied in float32: a bias of 128 scales would have few digits there.
    """
    found = packed(b, weight, torch.float32)
    if found is None:
        return None
    shape = (*x.shape[:-1], weight.shape[0])
    made = b.op(
        schema.QuantizedMatmulNode,
        shape,
        torch.float32,
        x=b.cast(x, torch.float32),
        w=found.words,
        scales=found.scales,
        biases=found.biases,
        group_size=found.group,
        bits=found.bits,
        mode="affine",
        transpose=True,
    )
    return b.cast(made, x.dtype)


def quantized_rows(b: GraphBuilder, indices: Value, table: Operand) -> Value | None:
    """Rows of a known table that stays integers: those that are looked up are unpacked; None if it cannot."""
    found = packed(b, table, torch.float32)
    if found is None:
        return None
    words, scales, biases = (taken(b, part, 0, indices) for part in (found.words, found.scales, found.biases))
    made = unpacked(b, Packed(words, scales, biases, found.group, found.bits), (*indices.shape, table.shape[1]))
    return b.cast(made, table.dtype)


def unpacked(b: GraphBuilder, found: Packed, shape: Iterable[Any]) -> Value:
    """The numbers of packed integers, of these sizes, in float32."""
    return b.op(
        schema.DequantizeNode,
        shape,
        torch.float32,
        w=found.words,
        scales=found.scales,
        biases=found.biases,
        group_size=found.group,
        bits=found.bits,
        mode="affine",
        dtype=NUMBERS[torch.float32],
    )
