"""Places the planned values of an emitted method: sets offsets in its tensors, and drops unneeded instructions."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from ..pte import schema
from ..pte.dtypes import torch_dtype
from .arena import PlacedValue, PlannedSpace, PlannedValue, Spaces
from .storage import Storage
from .writer import Writer


def place_values(
    method: str, writer: Writer, outputs: Sequence[Any], spaces: Spaces, overread: int
) -> tuple[list[int], tuple[PlannedSpace, ...], tuple[PlacedValue, ...]]:
    """Place all storages, write their offsets into the tensors, and leave out copies that are not needed.

    `outputs` are what the method returns; delegates read up to `overread` bytes beyond their inputs. Returns the sizes
    of the spaces from 0 on, those in use, and what lies in them. Raises LoweringError, with figures, if something
    does not fit.
    """
    storages = writer.values.storages
    planner = spaces.options.planner
    needless = writer.reuse.apply(storages, planner if isinstance(planner, str) else "best")
    planned = _planned_values(method, writer, outputs, storages, needless)
    places, sizes, used = spaces.plan(method, list(planned.values()), overread)
    place_of = dict(zip(planned, places, strict=True))
    for storage in storages:
        root, shift = storage.root()
        space, offset = place_of[root]
        for tensor in storage.tensors:
            place = offset + shift
            tensor.allocation_info = schema.AllocationDetails(
                memory_id=space, memory_offset_low=place & 0xFFFFFFFF, memory_offset_high=place >> 32
            )
    writer.code.drop(needless)
    placed = tuple(PlacedValue(planned[root], *place) for root, place in place_of.items())
    return sizes, used, placed


def _planned_values(
    method: str, writer: Writer, outputs: Sequence[Any], storages: Sequence[Storage], needless: Set[int]
) -> dict[Storage, PlannedValue]:
    """A description of each storage that lies in no other one, with steps counted as in the finished method."""
    values, code = writer.values, writer.code
    kept = [0]  # step -> the number of remaining steps up to it
    for step in range(1, len(code) + 2):
        kept.append(kept[-1] + (step not in needless))
    members: dict[Storage, list[Storage]] = {}
    for storage in storages:
        members.setdefault(storage.root()[0], []).append(storage)
    returned = values.homes(index for item in outputs if (index := values.index(item)) is not None)
    found: dict[Storage, PlannedValue] = {}
    for root, inner in members.items():
        table = root.tensors[0]
        writes = sorted({storage.first for storage in inner} - needless)
        reads = sorted({step for storage in inner for step in storage.reads} - needless)
        found[root] = PlannedValue(
            method=method,
            names=tuple(dict.fromkeys(storage.name for storage in (root, *inner))),
            size=root.size,
            dtype=str(torch_dtype(table.scalar_type)).removeprefix("torch."),
            shape=tuple(table.sizes or ()),
            first=kept[root.first],
            last=kept[min(root.last, len(code) + 1)],
            is_input=any(storage.first == 0 and not storage.state for storage in inner),
            is_output=any(storage in returned for storage in inner),
            is_buffer=root.state,
            writers=code.actors(writes, "input" if not root.state else "initial value"),
            readers=code.actors(reads, ""),
        )
    return found
