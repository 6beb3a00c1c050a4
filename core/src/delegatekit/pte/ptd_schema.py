"""The tables of the .ptd format, as the ExecuTorch 1.5 runtime reads them; field order is vtable order."""

from __future__ import annotations

import math

from delegatekit_toolkit.flatbuffer import Table, i8, ref, string, tables, u32, u64, vector

from .schema import ELEMENT_SIZE, ScalarType

#: File identifier of a .ptd.
PTD_IDENTIFIER = b"FT01"


class TensorLayout(Table):
    """Element type, sizes, and dims from outermost to innermost."""

    scalar_type: int = i8()
    sizes: list[int] | None = vector("i32")
    dim_order: bytes | None = vector("u8")

    @property
    def nbytes(self) -> int:
        """Bytes of the content."""
        return math.prod(self.sizes or ()) * ELEMENT_SIZE[ScalarType(self.scalar_type)]

    def __str__(self) -> str:
        known = self.scalar_type in ELEMENT_SIZE
        kind = ScalarType(self.scalar_type).name.lower() if known else f"element type {self.scalar_type}"
        order = list(self.dim_order or ())
        return f"{kind} {list(self.sizes or ())}" + (f", dim order {order}" if order != sorted(order) else "")


class DataSegment(Table):
    """A segment; `offset` counts from the segment base."""

    offset: int = u64()
    size: int = u64()


class NamedData(Table):
    """A key, the segment that holds its data, and the layout if that is a tensor."""

    key: str | None = string()
    segment_index: int = u32()
    tensor_layout: TensorLayout | None = ref(lambda: TensorLayout)


class FlatTensor(Table):
    """The root table."""

    version: int = u32()
    segments: list[DataSegment] | None = tables(lambda: DataSegment)
    named_data: list[NamedData] | None = tables(lambda: NamedData)
