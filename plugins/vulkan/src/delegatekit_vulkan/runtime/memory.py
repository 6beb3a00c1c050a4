"""Memory of a tape: blocks, the tensors in them, and the values kept from call to call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..ir.graph import SymInt, Tensor
from ..ir.types import DataType

if TYPE_CHECKING:
    import numpy as np

WORD: Final = 4


@dataclass(eq=False)
class Block:
    """Memory of some words: of constants, which `content` makes once, of state, or of computed values."""

    words: int
    #: Makes the words of a constant (a uint32 array); None for computed values.
    content: Callable[[], np.ndarray[Any, Any]] | None = None
    #: True if it is kept from call to call: memory of the delegate's, not of a recording.
    lasting: bool = False

    @property
    def is_computed(self) -> bool:
        """True if its words are valid within one call only."""
        return self.content is None and not self.lasting

    @property
    def bytes(self) -> int:
        """Its size, a multiple of four words: shaders take four at a time. Blocks of 0 bytes are not bound."""
        return -(-max(self.words, 1) // 4) * 4 * WORD


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor on the device."""

    shape: tuple[int, ...]
    datatype: DataType
    block: Block

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """True if its words are float32 rather than int32."""
        return self.datatype.is_float

    @property
    def is_half(self) -> bool:
        """True if stored values are rounded to float16."""
        return self.datatype is DataType.FLOAT16


@dataclass(frozen=True)
class Kept:
    """The tensors that are kept from call to call, in memory of the delegate's."""

    blocks: Mapping[Tensor, Block]
    #: Block -> position of the last call that overwrites it.
    overwritten: Mapping[Block, int]
    #: Tensor -> position of the last call that reads it.
    last_reads: Mapping[Tensor | SymInt, int]

    def changes_under(self, tensor: Tensor, source: Block, call: int) -> bool:
        """True if a tensor that a call makes of this memory is still read after the memory was overwritten."""
        return call < self.overwritten.get(source, -1) < self.last_reads.get(tensor, -1)


@dataclass(frozen=True)
class Padded:
    """Zeros around a value, which are not written until something reads them."""

    source: Value
    #: Zeros before and after it, along each axis.
    before: tuple[int, ...]
    after: tuple[int, ...]
    #: Writes both into a result.
    write: Callable[[Value], None]
    #: The call that padded it.
    call: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes with the zeros."""
        return tuple(map(sum, zip(self.source.shape, self.before, self.after, strict=True)))
