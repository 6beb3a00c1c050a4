"""The VGF container (versions 0.3 to 0.5): a header of 128 bytes, four sections, the last one with the constants.

The sections before it are flatbuffers; their tables are those of the schema in Arm's VGF library.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from delegatekit_api import FormatError
from delegatekit_toolkit import flatbuffer as fb

WHERE: Final = "VGF file"
_MAGIC: Final = b"VGF1"
#: Magic, version of the Vulkan headers, version of the format; then offset and size of each section.
_HEADER: Final = struct.Struct("<4sHxxBBBx4x8Q")
_HEADER_SIZE: Final = 128
_VERSIONS: Final = ((0, 3), (0, 4), (0, 5))
_SECTIONS: Final = ("module table", "model sequence table", "resource table", "constants")
_CONSTANTS: Final = b"CONST00\0"
#: Index of the resource, sparsity, size, offset after the last of these.
_CONSTANT: Final = struct.Struct("<IiQQ")
#: The kind of a module that is a graph.
_GRAPH: Final = 1


class Spirv(fb.Table):
    """A module's code: 32-bit words."""

    words: list[int] | None = fb.vector("u32")


class NotSpirv(fb.Table):
    """The source of a shader, which is not read."""


class Module(fb.Table):
    """A graph or a shader."""

    type: int = fb.u8()
    name: str | None = fb.string()
    entry_point: str | None = fb.string()
    code: fb.Table | None = fb.union(lambda: (Spirv, NotSpirv, NotSpirv))


class ModuleTable(fb.Table):
    """All modules."""

    modules: list[Module] | None = fb.tables(lambda: Module)


class BindingSlot(fb.Table):
    """The place of a resource in a descriptor set."""

    binding: int = fb.u32()
    mrt_index: int = fb.u32()


class DescriptorSetInfo(fb.Table):
    """The places of a descriptor set."""

    bindings: list[BindingSlot] | None = fb.tables(lambda: BindingSlot)


class SegmentInfo(fb.Table):
    """One dispatch."""

    type: int = fb.u8()
    name: str | None = fb.string()
    module_index: int = fb.u32()
    set_infos: list[DescriptorSetInfo] | None = fb.tables(lambda: DescriptorSetInfo)
    inputs: list[BindingSlot] | None = fb.tables(lambda: BindingSlot)
    outputs: list[BindingSlot] | None = fb.tables(lambda: BindingSlot)
    constants: list[int] | None = fb.vector("u32")


class ModelSequenceTable(fb.Table):
    """The dispatches of the model, in order."""

    segments: list[SegmentInfo] | None = fb.tables(lambda: SegmentInfo)
    inputs: list[BindingSlot] | None = fb.tables(lambda: BindingSlot)
    outputs: list[BindingSlot] | None = fb.tables(lambda: BindingSlot)
    input_names: list[str] | None = fb.strings()
    output_names: list[str] | None = fb.strings()


@dataclass(frozen=True)
class Container:
    """A model of one graph: the words of its SPIR-V module, and the constants that it names by number."""

    words: tuple[int, ...]
    constants: tuple[memoryview, ...]


def unpack(blob: bytes | bytearray | memoryview) -> Container:
    """Read a VGF file. Raises FormatError for a damaged one, and for one that is not a single graph."""
    view = memoryview(blob).cast("B")
    modules, sequence, _, constants = _sections(view)
    table = fb.parse(ModuleTable, modules).modules or []
    segments = fb.parse(ModelSequenceTable, sequence).segments or []
    if len(segments) != 1 or segments[0].type != _GRAPH:
        raise FormatError(f"has {len(segments)} segments: one graph is run here", where=WHERE)
    (segment,) = segments
    if segment.module_index >= len(table):
        raise FormatError(f"its segment names module {segment.module_index} of {len(table)}", where=WHERE)
    code = table[segment.module_index].code
    if not isinstance(code, Spirv) or code.words is None:
        raise FormatError("its graph has no SPIR-V", where=WHERE)
    known = _constants(constants)
    wanted = segment.constants or []
    if any(number >= len(known) for number in wanted):
        raise FormatError(f"its graph names constants {wanted} of {len(known)}", where=WHERE)
    return Container(tuple(code.words), tuple(known[number] for number in wanted))


def _sections(view: memoryview) -> tuple[memoryview, ...]:
    """The four sections, in the header's order."""
    if len(view) < _HEADER_SIZE or bytes(view[:4]) != _MAGIC:
        raise FormatError("does not begin with a header of 128 bytes", where=WHERE)
    _, _, major, minor, _, *places = _HEADER.unpack_from(view)
    if (major, minor) not in _VERSIONS:
        known = ", ".join(f"{first}.{second}" for first, second in _VERSIONS)
        raise FormatError(f"version {major}.{minor}: {known} are read", where=WHERE)
    found = []
    for name, start, size in zip(_SECTIONS, places[::2], places[1::2], strict=True):
        if start < _HEADER_SIZE or start % 8 or start + size > len(view):
            raise FormatError(f"its {name} of {size} bytes at {start} is outside of its {len(view)}", where=WHERE)
        found.append(view[start : start + size])
    return tuple(found)


def _constants(section: memoryview) -> tuple[memoryview, ...]:
    """The bytes of all constants."""
    if len(section) < 16 or bytes(section[:8]) != _CONSTANTS:
        raise FormatError("the section of constants does not begin with its version", where=WHERE)
    count = int.from_bytes(section[8:16], "little")
    if count > (len(section) - 16) // _CONSTANT.size:
        raise FormatError(f"{count} constants do not fit {len(section)} bytes", where=WHERE)
    return tuple(_contents(section, count))


def _contents(section: memoryview, count: int) -> Iterator[memoryview]:
    data = section[16 + count * _CONSTANT.size :]
    for number in range(count):
        # (Sparsity names the axis along which two of four numbers are 0; all four are stored.)
        _, _, size, offset = _CONSTANT.unpack_from(section, 16 + number * _CONSTANT.size)
        if offset + size > len(data):
            raise FormatError(f"constant {number} lies outside of the section", where=WHERE)
        yield data[offset : offset + size]
