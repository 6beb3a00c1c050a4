"""Weights that are places in tables of numbers, which the device looks up: palettes, in Core ML's words."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from delegatekit_api import Call, LoweringError
from delegatekit_api.schemes import DEQUANTIZE_TABLES
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var
from ..ir.types import BY_NAME
from ..targets import IOS16, IOS18, Target
from .program import Lower, ProgramBuilder, device_array

#: Bits of places, and those that packages had before iOS 18.
_BITS: Final = (1, 2, 3, 4, 6, 8)
_NUMBERS: Final = ("float32", "float16")
OLD_BITS: Final = (1, 2, 4, 6, 8)


def looked_up(b: ProgramBuilder, places: np.ndarray[Any, Any], lut: np.ndarray[Any, Any]) -> Var:
    """Numbers by their places: `lut` has a table for each block of them, (*blocks along each axis, entries)."""
    bits = int(lut.shape[-1]).bit_length() - 1
    if b.target < IOS18:
        return b.call(
            "constexpr_lut_to_dense",
            indices=b.stored(packed_bits(places.reshape(-1), bits)),
            lut=lut.reshape(-1),
            shape=np.array(places.shape, dtype=np.uint32),
        )
    indices = b.stored(places, BY_NAME[f"uint{bits}"])
    return b.call("constexpr_lut_to_dense", indices=indices, lut=lut[..., None])


def packed_bits(numbers: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Small numbers as a stream of bits, the first in the lowest ones.

    >>> packed_bits(np.array([1, 2, 3]), 4)
    array([33,  3], dtype=uint8)
    """
    digits = (numbers[:, None] >> np.arange(bits)) & 1
    return np.packbits(digits.reshape(-1), bitorder="little")


# -- programs that have tables already ---------------------------------------------------------------------------------


def _dequantize(b: ProgramBuilder, call: Call) -> Var:
    tables = call["codebook"].constant
    assert tables is not None
    datatype = b.result_type(call)

    def make(codes: Any) -> Var:
        b.release(call)
        lut = device_array(tables.squeeze(-1).to(call.result.dtype), datatype)
        if not 0 <= int(codes.min()) <= int(codes.max()) < lut.shape[-1]:
            raise LoweringError(
                f"has places {int(codes.min())} to {int(codes.max())} in tables of {lut.shape[-1]} numbers",
                where=call.description,
            )
        missing = (1 << _stored_bits(call["nbits"])) - lut.shape[-1]
        lut = np.concatenate([lut, np.repeat(lut[..., -1:], missing, -1)], -1)
        return looked_up(b, codes.numpy().astype(np.uint8), lut)

    return b.packed(call["codes"], ("tables", call.node, datatype), make)


def _stored_bits(bits: int) -> int:
    """The bits in which places are stored: MIL has neither 5 nor 7."""
    return min(found for found in _BITS if found >= bits)


def _blocks(call: Call) -> tuple[int, ...]:
    """The number of blocks along each axis."""
    sizes = zip(call["codes"].shape, call["block_size"], strict=True)
    return tuple(1 if block == -1 else size // block for size, block in sizes)


def tables_of_numbers(call: Call) -> str | None:
    """Places and tables are constants, with a table for each block, whose numbers become float32 or float16."""
    codes, tables = call["codes"], call["codebook"]
    if not (codes.is_constant and tables.is_constant):
        return "places or tables are computed"
    if codes.dtype.is_floating_point or not tables.dtype.is_floating_point or call.result.dtype_name not in _NUMBERS:
        return f"places are {codes.dtype_name}, tables {tables.dtype_name} and numbers {call.result.dtype_name}"
    if tables.shape != (*_blocks(call), 1 << call["nbits"], 1):
        return f"tables {tuple(tables.shape)} for blocks {tuple(call['block_size'])} of {tuple(codes.shape)}"
    return None


def oldest_form(call: Call) -> Target:
    """The target from which on there are such tables: several, and of 3 bits, came with iOS 18."""
    is_old = set(_blocks(call)) == {1} and _stored_bits(call["nbits"]) in OLD_BITS
    return IOS16 if is_old else IOS18


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(DEQUANTIZE_TABLES, _dequantize, tables_of_numbers, keep=True, passenger=True, since=oldest_form, tables=True),
)
