"""The delegate blob of stock ExecuTorch's EthosUBackend ("vela_bin_stream"), written and read.

A sequence of blocks: a 16-byte name, the length of the data (uint32), a byte that is 1 if the data is a key of named
data, 11 zero bytes, then the data, padded to a multiple of 16 bytes. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delegatekit_api import FormatError
from delegatekit_toolkit.content import content_key
from delegatekit_toolkit.dataflow import check_disjoint, element_count

#: The id under which the runtime on the device registers.
DELEGATE_ID: Final = "EthosUBackend"

_HEADER: Final = struct.Struct("<16sIB11x")
_BINDING: Final = struct.Struct("<9i")
_ALIGNMENT: Final = 16
#: The blocks in order.
_BLOCKS: Final = (
    "vela_bin_stream",
    "cmd_data",
    "weight_data",
    "scratch_size",
    "inputs",
    "outputs",
    "vela_end_stream",
)
#: The compile spec with the key of the TOSA program in the file, if there is one.
TOSA_SPEC: Final = "tosa"
#: Compile specs that the runtime on the device ignores: the accelerator, and Vela's version.
TARGET_SPEC: Final = "target"
VELA_SPEC: Final = "vela_version"
#: The region in which ExecuTorch's runtime puts inputs and outputs.
_SCRATCH: Final = 1


@dataclass(frozen=True)
class Binding:
    """The location of an input or output: `shape` has 6 sizes, padded with 1 in front; `region` is a number, 0 to 7."""

    shape: tuple[int, ...]
    #: Bytes of an element.
    element_size: int
    #: Byte offset within the region.
    address: int
    region: int


@dataclass(frozen=True)
class Blob:
    """The content of a blob: commands, constants, and the locations of inputs and outputs.

    Regions: 0 has the constants, 1 the arena with inputs and outputs (`scratch_size` bytes).
    """

    command_stream: bytes | memoryview
    read_only: bytes | memoryview
    scratch_size: int
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]


def pack(blob: Blob) -> bytes:
    """The bytes of a blob, identical to stock ExecuTorch's."""
    contents = (
        b"",
        blob.command_stream,
        blob.read_only,
        struct.pack("<I", blob.scratch_size),
        _pack_bindings(blob.inputs),
        _pack_bindings(blob.outputs),
        b"",
    )
    return b"".join(_block(name, data) for name, data in zip(_BLOCKS, contents, strict=True))


def unpack(blob: bytes | bytearray | memoryview, named_data: Mapping[str, bytes | memoryview] | None = None) -> Blob:
    """Read a blob and check everything but the commands; blocks stored outside are taken from `named_data`.

    Raises FormatError with the block and its offset.
    """
    found = dict(_blocks(memoryview(blob).cast("B"), named_data or {}))
    scratch = found["scratch_size"]
    if len(scratch) != 4:
        raise FormatError(f"has {len(scratch)} bytes, not 4", where="block scratch_size")
    size = int.from_bytes(scratch, "little")
    return Blob(
        found["cmd_data"],
        found["weight_data"],
        size,
        _unpack_bindings(found["inputs"], size, "inputs"),
        _unpack_bindings(found["outputs"], size, "outputs"),
    )


def tosa_key(program: bytes | memoryview) -> str:
    """The key of a TOSA program in the file: its sha256."""
    return f"{content_key(program)}.tosa"


def _block(name: str, data: bytes | memoryview) -> bytes:
    return b"".join((_HEADER.pack(name.encode(), len(data), 0), data, bytes(-len(data) % _ALIGNMENT)))


def _pack_bindings(bindings: Sequence[Binding]) -> bytes:
    rows = (_BINDING.pack(*item.shape, item.element_size, item.address, item.region) for item in bindings)
    return struct.pack("<i", len(bindings)) + b"".join(rows)


def _blocks(blob: memoryview, named_data: Mapping[str, bytes | memoryview]) -> Iterator[tuple[str, bytes | memoryview]]:
    """Names and contents of the blocks, which must be complete and in order."""
    offset = 0
    for wanted in _BLOCKS:
        where = f"block {wanted} at offset {offset}"
        if offset + _HEADER.size > len(blob):
            raise FormatError("the blob ends before it", where=where)
        name, length, external = _HEADER.unpack_from(blob, offset)
        if name.rstrip(b"\0") != wanted.encode():
            raise FormatError(f"another name is in its place: {name!r}", where=where)
        if external > 1 or any(blob[offset + 21 : offset + _HEADER.size]):
            raise FormatError("its header is damaged", where=where)
        start = offset + _HEADER.size
        offset = start + length + -length % _ALIGNMENT
        if offset > len(blob):
            raise FormatError(f"its {length} bytes exceed the blob", where=where)
        data = blob[start : start + length]
        yield wanted, _external(data, named_data, where) if external else data
    if offset != len(blob):
        raise FormatError(f"{len(blob) - offset} bytes follow the last block", where=f"offset {offset}")


def _external(name: memoryview, named_data: Mapping[str, bytes | memoryview], where: str) -> bytes | memoryview:
    key = str(name, "ascii", errors="replace")
    data = named_data.get(key)
    if data is None:
        raise FormatError(f"its data is outside, under {key!r}, and missing", where=where)
    return data


def _unpack_bindings(data: bytes | memoryview, scratch_size: int, name: str) -> tuple[Binding, ...]:
    where = f"block {name}"
    count = int.from_bytes(data[:4], "little")
    if len(data) != 4 + count * _BINDING.size:
        raise FormatError(f"has {len(data)} bytes for {count} tensors", where=where)
    bindings = []
    # The same location twice is one tensor that is returned twice.
    places: set[tuple[int, int]] = set()
    for index, row in enumerate(_BINDING.iter_unpack(data[4:])):
        binding = Binding(tuple(row[:6]), *row[6:])
        if min(binding.shape) < 1 or binding.element_size not in (1, 2, 4):
            raise FormatError(
                f"tensor {index} has the shape {binding.shape} of {binding.element_size} bytes", where=where
            )
        count = element_count(binding.shape, f"{where}, tensor {index}", item_bytes=binding.element_size)
        size = count * binding.element_size
        if binding.region != _SCRATCH or binding.address < 0 or binding.address + size > scratch_size:
            raise FormatError(f"tensor {index} lies outside the arena of {scratch_size} bytes", where=where)
        bindings.append(binding)
        places.add((binding.address, size))
    if name == "inputs" and len(places) != len(bindings):
        raise FormatError("two of them have one place", where=where)
    check_disjoint((start, size, f"{where}, bytes {start} to {start + size}") for start, size in places)
    return tuple(bindings)
