"""Writes a .pte: lays out header, flatbuffer and segments, then streams the data from its storage.

Layout (ExecuTorch 1.5): root offset, "ET12", extended header "eh00", flatbuffer, segments aligned to 128 bytes.
Segment 0 holds all constants, 16-aligned; then initial state, blobs, named data. Equal data is stored once.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from delegatekit_api import LoweringError, NamedData
from delegatekit_toolkit.flatbuffer import serialize

from ..files import Writer, write_files
from . import schema
from .image import PteImage
from .ptd_writer import write_ptd_to
from .segments import SEGMENT_ALIGNMENT, Data, Segments, contents, data_size, round_up

#: Constants within their segment start at multiples of this many bytes.
CONSTANT_ALIGNMENT = 16
#: The extended header: magic, length, program size, segment base, segment data size.
HEADER = struct.Struct("<4sIQQQ")
HEADER_MAGIC = b"eh00"


def write(image: PteImage, path: str | Path, beside: Mapping[Path, Writer] | None = None) -> tuple[Path, ...]:
    """Write the file, its data files beside it, and its other files: all of them whole, or nothing.

    Old files are replaced when all new ones are complete. Returns the paths: data files, the others, the .pte last.
    Raises LoweringError if two of them are the same file, FormatError for one that cannot be written.
    """
    path = Path(path)
    writers: dict[Path, Writer] = {}
    data: list[Writer] = [partial(write_ptd_to, item) for item in image.data_files.values()]
    others: Mapping[Path, Writer] = beside or {}
    for target, writer in (*zip(data_paths(path, image.data_files), data, strict=True), *others.items()):
        if target in writers or target == path:
            raise LoweringError("two files of this program have this name", where=str(target), hint="choose another")
        writers[target] = writer
    writers[path] = partial(write_to, image)
    write_files(writers)
    return tuple(writers)


def data_paths(path: Path, names: Iterable[str]) -> list[Path]:
    """The paths of a .pte's data files: "" of "model.pte" is "model.ptd", another one NAME.ptd."""
    own = path.stem if path.suffix == ".pte" else path.name
    return [path.with_name(f"{name or own}.ptd") for name in names]


def to_bytes(image: PteImage) -> bytes:
    """The .pte as bytes, without its data files."""
    buffer = io.BytesIO()
    write_to(image, buffer)
    return buffer.getvalue()


def write_to(image: PteImage, file: BinaryIO) -> None:
    """Write the bytes of the .pte, front to back."""
    program, segments = _lay_out(image)
    flatbuffer = serialize(program, schema.PTE_IDENTIFIER)
    program_size = len(flatbuffer) + HEADER.size
    base = round_up(program_size, SEGMENT_ALIGNMENT)
    # The header goes between the root offset and the data that it counts from the start of the file.
    (root,) = struct.unpack_from("<I", flatbuffer)
    file.write(struct.pack("<I", root + HEADER.size) + flatbuffer[4:8])
    file.write(HEADER.pack(HEADER_MAGIC, HEADER.size, program_size, base, segments.size))
    file.write(memoryview(flatbuffer)[8:])
    segments.write(file, program_size, base)


def tables(image: PteImage) -> schema.Program:
    """The tables of the .pte, as a reader finds them."""
    return _lay_out(image)[0]


def _lay_out(image: PteImage) -> tuple[schema.Program, Segments]:
    segments = Segments()
    constants, constant_numbers = _subsegment(image.constants, segments)
    states, state_numbers = None, list[int]()
    if image.mutable_state:
        # Each buffer is updated by itself; the runtime copies what equal ones begin with.
        states, state_numbers = _subsegment(image.mutable_state, segments, apart=True)
    blobs = _separate(image.delegate_blobs, segments)
    named = _named_segments(image.named_data, segments)
    program = schema.Program(
        version=0,
        execution_plan=[_renumbered(plan, constant_numbers, state_numbers, blobs) for plan in image.plans],
        constant_buffer=[],
        backend_delegate_data=[],
        segments=[schema.DataSegment(segment.offset, segment.size) for segment in segments.found],
        constant_segment=constants,
        mutable_data_segments=[states] if states is not None else [],
        named_data=named,
    )
    return program, segments


def _subsegment(
    items: Sequence[Data], segments: Segments, *, apart: bool = False
) -> tuple[schema.SubsegmentOffsets, list[int]]:
    """All items in one segment, equal ones once. Returns its table, and the number of each item, counted from 1: with
    `apart`, equal ones have numbers of their own, which lead to the same bytes."""
    starts: dict[Hashable, int] = {}
    parts: list[tuple[int, Data]] = []
    end, keys = 0, contents(items)
    for item, content in zip(items, keys, strict=True):
        if content not in starts:
            starts[content] = round_up(end, CONSTANT_ALIGNMENT)
            parts.append((starts[content], item))
            end = starts[content] + data_size(item)
    if apart:
        offsets, numbers = [starts[content] for content in keys], list(range(1, len(keys) + 1))
    else:
        known = {content: number for number, content in enumerate(starts, 1)}
        offsets, numbers = list(starts.values()), [known[content] for content in keys]
    return schema.SubsegmentOffsets(segments.add(parts, end), [0, *offsets]), numbers


def _separate(items: Sequence[Data], segments: Segments) -> list[int]:
    """A segment for each item, equal ones sharing one."""
    known: dict[Hashable, int] = {}
    keys = contents(items)
    for item, content in zip(items, keys, strict=True):
        if content not in known:
            known[content] = segments.add([(0, item)], data_size(item))
    return [known[content] for content in keys]


def _named_segments(items: Sequence[NamedData], segments: Segments) -> list[schema.NamedData]:
    """A segment for each key. The data of a key is only compared if the key is repeated."""
    by_key: dict[str, list[NamedData]] = {}
    for named in items:
        if named.alignment < 1 or named.alignment & (named.alignment - 1):
            raise LoweringError(f"alignment {named.alignment} is not a power of two", where=f"named data {named.key}")
        by_key.setdefault(named.key, []).append(named)
    tables = []
    for key, found in by_key.items():
        if len(set(contents([named.data for named in found]))) > 1:
            raise LoweringError(
                "two different pieces of data have this key",
                where=f"named data {key}",
                hint="the backend must make its keys from the content, or from unique names",
            )
        data, alignment = found[0].data, max(named.alignment for named in found)
        tables.append(schema.NamedData(key, segments.add([(0, data)], data_size(data), alignment)))
    return tables


def _renumbered(
    plan: schema.ExecutionPlan, constants: Sequence[int], states: Sequence[int], blobs: Sequence[int]
) -> schema.ExecutionPlan:
    """The plan with the indices of the image replaced by those of the file; the plan itself is not changed."""
    values = [_renumbered_value(value, constants, states) for value in plan.values or ()]
    delegates = []
    for delegate in plan.delegates or ():
        place = delegate.processed
        if place is not None and place.location == schema.DataLocation.SEGMENT:
            place = schema.BackendDelegateDataReference(place.location, blobs[place.index])
        delegates.append(replace(delegate, processed=place))
    return replace(
        plan,
        values=None if plan.values is None else values,
        delegates=None if plan.delegates is None else delegates,
    )


def _renumbered_value(value: schema.EValue, constants: Sequence[int], states: Sequence[int]) -> schema.EValue:
    tensor = value.val
    if not isinstance(tensor, schema.Tensor) or not tensor.data_buffer_idx:
        return value
    numbers = constants if tensor.allocation_info is None else states
    return schema.EValue(replace(tensor, data_buffer_idx=numbers[tensor.data_buffer_idx - 1]))
