"""The writer's input from emission: plans whose data is still in its original storage."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from delegatekit_api import NamedData

from . import ptd_schema, schema
from .segments import Data, contents


@dataclass(frozen=True)
class Datum:
    """One entry of a .ptd: data under a key, with the layout if it is a tensor."""

    key: str
    data: Data
    layout: ptd_schema.TensorLayout | None = None
    #: Alignment in the file, in bytes: a power of two.
    alignment: int = 1


@dataclass(frozen=True)
class PtdImage:
    """The content of a .ptd file. A key may be repeated with the same data and layout."""

    data: tuple[Datum, ...] = ()

    @cached_property
    def contents(self) -> list[Hashable]:
        """A key for each entry, equal where the bytes are equal: these are in the file once."""
        return contents([datum.data for datum in self.data])


@dataclass(frozen=True)
class PteImage:
    """The content of a .pte file.

    In `plans`, a tensor's data_buffer_idx i+1 means constants[i] (or mutable_state[i] for a tensor with allocation),
    and a delegate's `processed` is (SEGMENT, index into delegate_blobs).
    """

    plans: tuple[schema.ExecutionPlan, ...]
    constants: tuple[Data, ...] = ()
    mutable_state: tuple[Data, ...] = ()
    delegate_blobs: tuple[Data, ...] = ()
    named_data: tuple[NamedData, ...] = ()
    #: The data files beside the .pte, by name; "" is the one named like the .pte.
    data_files: Mapping[str, PtdImage] = field(default_factory=dict)
