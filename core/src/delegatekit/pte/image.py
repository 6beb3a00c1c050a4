"""What emission hands to the writer: plans whose data is still where it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, Union

from delegatekit_api import NamedData

from . import schema

if TYPE_CHECKING:
    import torch

#: Bytes, a tensor (written from its own storage), or pieces that are written one behind the other.
Data: TypeAlias = Union[bytes, bytearray, memoryview, "torch.Tensor", Sequence[bytes | bytearray | memoryview]]


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
